"""A small ferry on the vendored text and items: the real graph, engines and jobs, sized for a test."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest

from marin_assets.definitions import build_defs
from recipes.ferry import Ferry
from recipes.lab import canary_line, default_line, smoke_ferry
from recipes.lines import Line
from recipes.runs import smoke
from resources.lab import Lab, LabResource

DAY = "2026-11-20"


@dataclass(frozen=True)
class Sailed:
    """A finished day of the small ferry, and the instance that recorded it."""

    ferry: Ferry
    lab: Lab
    resource: LabResource
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    run: dg.DagsterRun


def small_line(name: str) -> Line:
    """Two steps' worth of a model over the text that the repository ships."""
    spec = smoke()
    run = replace(
        spec,
        name=name,
        model=replace(
            spec.model, vocab_size=1024, hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=1,
            max_seq_len=128,
        ),
        schedule=replace(spec.schedule, warmup_steps=4),
        seq_len=128,
        batch_size=8,
        num_steps=40,
        save_every_steps=20,
    )  # fmt: skip
    return replace(
        canary_line("cpu", None),
        scope="small",
        policy="small",
        suite="small",
        corpus="small",
        tokenizer="bpe1k",
        vocab_size=1024,
        cache="small-bpe1k",
        mixture="small",
        run=run,
        run_key=(),
    )


def small_ferry() -> Ferry:
    line = replace(small_line("smoke"), prefix=("ferry",))
    return Ferry(online=line, offline=line)


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
    return build_defs(resource, ferry=smoke_ferry(), line=default_line())


def repository() -> Path:
    return Path(__file__).resolve().parents[2]
