"""Shuffles on a real Ray cluster of two machines (raylets): the parts of the local run, whatever dies meanwhile."""

import contextlib
import importlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lineage.tables.components import components
from lineage.tables.local import LocalEngine
from lineage.tables.ranges import stars
from lineage.tables.ray_tasks import RayEngine
from lineage.tables.shuffle import Shuffle
from lineage.writing.working_folder import SCRATCH_FOLDER

pytest.importorskip("ray", reason="ray is not installed (group `ray` of pyproject.toml)")
pytestmark = pytest.mark.slow
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@dataclass
class InFolder:
    """Runs shards one after another in this process, without their records."""

    folder: Path

    def map_shards(self, function, tasks, workers=None):
        return {name: function(self.folder, *arguments) for name, arguments in tasks.items()}


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
def cluster():
    """A head without cores, and two machines of one core. Its processes import what this one imports."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    # A raylet gives up after 30 s without its agent, which a loaded machine needs longer to start.
    patch.setenv("RAY_agent_register_timeout_ms", "300000")
    patch.setenv("RAY_raylet_start_wait_time_s", "300")
    made = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
    )
    machines = [made.add_node(**NODE) for _ in range(2)]
    yield made, machines
    importlib.import_module("ray").shutdown()
    made.shutdown()
    patch.undo()


def test_a_killed_worker_and_a_killed_machine_change_nothing(cluster, tmp_path):
    made, machines = cluster
    local, here = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path)
    expected = components(here, local, local.shuffle(here, linked(None)), largest=1_000)
    engine = RayEngine(made.address)
    found = engine.shuffle(here, linked(str(tmp_path / "killed")))
    assert (tmp_path / "killed").exists()
    made.remove_node(machines[0], allow_graceful=False)
    made.add_node(**NODE)
    parts = components(here, engine, found, largest=1_000)
    assert [part.digest for part in parts] == [part.digest for part in expected]
    assert [engine.table(part) for part in parts] == [local.table(part) for part in expected]
    assert engine.moved == local.moved
