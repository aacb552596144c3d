"""A small ferry on the vendored text and items: the real graph, engines and jobs, sized for a test."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from small_lines import DAY, small_ferry, small_line

from marin_assets.definitions import build_defs, declared_defs
from recipes.ferry import Ferry
from resources.lab import Lab, LabResource


@dataclass(frozen=True)
class Sailed:
    """A finished day of the small ferry, and the instance that recorded it."""

    ferry: Ferry
    lab: Lab
    resource: LabResource
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    run: dg.DagsterRun


@pytest.fixture(scope="session")
def sailed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sailed]:
    """One day of the small ferry, sailed through its real job into a real (temporary) instance."""
    root = tmp_path_factory.mktemp("lab")
    resource = LabResource(root=str(root), workers=2)
    ferry = small_ferry()
    definitions = build_defs(resource, ferry=ferry, line=small_line("tiny"))
    with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as instance:
        result = definitions.resolve_job_def("smoke_ferry").execute_in_process(partition_key=DAY, instance=instance)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        yield Sailed(ferry, Lab.at(str(root), workers=2), resource, definitions, instance, run)


@pytest.fixture(scope="session")
def real_definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """The lab's own definitions over an empty root."""
    resource = LabResource(root=str(tmp_path_factory.mktemp("empty")), workers=1)
    return declared_defs(resource)


def repository() -> Path:
    return Path(__file__).resolve().parents[2]
