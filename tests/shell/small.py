"""A small ferry on vendored text and items: the real graph, engines and jobs at test size."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest
import small_runs
from small_runs import DAY, small_declarations, small_ferry

from lineage.private_files import KEY_FOLDER
from lineage.shards.execution import Execution
from lineage.storage.digests import file_digest, identity_digest
from lineage.trust.fingerprint import code_fingerprint
from marin_assets.definitions import build_defs, declared_defs
from recipes import ferry as recipe
from recipes.ferry import Ferry
from resources.lab import Lab, LabResource


@dataclass(frozen=True)
class FinishedFerry:
    """A finished day of the small ferry, and the instance that recorded it."""

    ferry: Ferry
    lab: Lab
    resource: LabResource
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    run: dg.DagsterRun


@pytest.fixture(scope="session")
def finished_ferry(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[FinishedFerry]:
    """A copy of a finished day of the small ferry, which is made once for each state of the code and kept between runs.

    Paths in the copy's event log name the original's folder.
    """
    root = copy_day(tmp_path_factory.mktemp("finished_ferry") / "day", pytestconfig)
    ferry, resource, definitions = small_lab(root / "lab")
    with dg.instance_for_test(temp_dir=str(root / "dagster")) as instance:
        (run,) = instance.get_runs()
        yield FinishedFerry(ferry, Lab.at(str(root / "lab"), execution=Execution(2)), resource, definitions, instance, run)


@pytest.fixture
def own_day(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A copy for one test (`lab`, `dagster`), for tests that count what an instance has run."""
    return copy_day(tmp_path / "day", pytestconfig)


def copy_day(root: Path, config: pytest.Config) -> Path:
    with kept_folder(config.cache.mkdir("finished_ferry"), code_state(), run_ferry_day) as day:
        return Path(shutil.copytree(day, root))


def run_ferry_day(folder: Path) -> None:
    """Build one day of the small ferry through its real job into `folder/lab`, recorded by an instance in `folder/dagster`.

    What it makes is signed by the key of `folder/keys`.
    """
    (folder / "dagster").mkdir(parents=True)
    _, _, definitions = small_lab(folder / "lab")
    keys = patch.dict(os.environ, {KEY_FOLDER: str(folder / "keys")})
    with keys, dg.instance_for_test(temp_dir=str(folder / "dagster")) as instance:
        result = definitions.resolve_job_def("smoke_ferry").execute_in_process(partition_key=DAY, instance=instance)
        assert result.success


def small_lab(root: Path) -> tuple[Ferry, LabResource, dg.Definitions]:
    """The small ferry, its lab's resource and the definitions of both."""
    resource = LabResource(root=str(root), workers=2)
    ferry = small_ferry()
    return ferry, resource, build_defs(resource, ferry=ferry, declared=small_declarations())


def code_state() -> str:
    """Digest of all that a finished day depends on: the ferry's code and data, and the versions of packages."""
    ferry = small_ferry()
    stages = {node.stage.module for node in recipe.nodes(ferry.run(DAY, reachable=True))}
    code = [code_fingerprint(module) for module in sorted({*stages, "marin_assets.definitions", "resources.lab", __name__})]
    files = [repository() / "requirements.lock", Path(small_runs.__file__), *sorted((repository() / "data").rglob("*"))]
    return identity_digest([*code, *(file_digest(path) for path in files if path.is_file())])


@contextmanager
def kept_folder(cache: Path, name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield `cache/name`, filled by `make` if no process did it before; other processes wait, and other names are deleted."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder, finished = cache / name, cache / name / "finished"
        if not finished.exists():
            for old in cache.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            make(folder)
            finished.touch()
        yield folder


@pytest.fixture(scope="session")
def real_definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """The lab's own definitions over an empty root."""
    resource = LabResource(root=str(tmp_path_factory.mktemp("empty")), workers=1)
    return declared_defs(resource)


def repository() -> Path:
    return Path(__file__).resolve().parents[2]
