"""Shuffles on a real Ray cluster of two machines (raylets): the parts of the local run, whatever dies meanwhile."""

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from in_folder import InFolder

from benchmarks.ray_machines import ray_machines
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.components import components
from lineage.tables.local import LocalEngine
from lineage.tables.ray_tasks import RayEngine
from lineage.tables.shuffle import Shuffle
from lineage.tables.stars import stars

pytest.importorskip("ray", reason="ray is not installed (group `ray` of pyproject.toml)")
pytestmark = pytest.mark.slow


def random_edges(seed, fatal):
    """100,000 edges. The first call with a path that does not exist dies there like a process out of memory."""
    if fatal is not None:
        with contextlib.suppress(FileExistsError):
            Path(fatal).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    ends = np.random.default_rng(seed).integers(0, 300_000, (100_000, 2))
    return pa.table({"root": ends[:, 0], "member": ends[:, 1]})


def linked(fatal):
    tasks = [(seed, fatal if seed == 2 else None) for seed in range(4)]
    return Shuffle("linked", random_edges, tasks, "member", stars, 3, spread=True)


@pytest.fixture(scope="module")
def machines():
    with ray_machines() as made:
        yield made


def test_a_killed_worker_and_a_killed_machine_change_nothing(machines, tmp_path):
    victim, _ = machines.add(), machines.add()
    local, here = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path)
    expected = components(here, local, local.shuffle(here, linked(None)), largest=1_000)
    engine = RayEngine(machines.address)
    found = engine.shuffle(here, linked(str(tmp_path / "killed")))
    assert (tmp_path / "killed").exists()
    machines.kill(victim)
    machines.add()
    parts = components(here, engine, found, largest=1_000)
    assert [part.digest for part in parts] == [part.digest for part in expected]
    assert [engine.table(here, part) for part in parts] == [local.table(here, part) for part in expected]
    assert engine.moved == local.moved


def test_two_levels_on_a_cluster_give_the_parts_of_one_level_here(machines, tmp_path, monkeypatch):
    machines.add()
    local, here, engine = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path), RayEngine(machines.address)
    step = Shuffle("levels", random_edges, [(seed, None) for seed in range(5)], "member", stars, 11, spread=True)
    expected = local.shuffle(here, step)
    monkeypatch.setattr("lineage.tables.shuffle.MOST_OPENS", 20)
    assert [part.digest for part in engine.shuffle(here, step)] == [part.digest for part in expected]
    assert engine.moved == local.moved
