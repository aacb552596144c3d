"""The training run of two hosts that chaos attacks: undisturbed on this machine, and as a JobSet of the whole lab.

Two hosts of one device each, on CPUs; the hardware's name is that of GPU nodes, so that the run is a gang.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from control_plane import free_port
from kubelet import Kubelet
from launches import ROOT
from small_runs import small_run

from lineage.artifact.store import Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build_all
from lineage.jobs.job import Attempt, LaunchRecord, LaunchRequest
from lineage.upkeep.mirror import mirror
from recipes.hardware import hardware
from recipes.records.run import Execution, Run
from recipes.runs import checkpoint
from trainer.processes import COORDINATOR, INDEX, PROCESSES

SHAPE = hardware("2xh100x8")
HOSTS = SHAPE.pods
SAVES = 10


def chaos_run(steps: int) -> Run:
    """Return the small run on two hosts, with ten kept checkpoints."""
    small = small_run("chaos")
    spec = replace(small.spec, num_steps=steps, save_every_steps=steps // SAVES)
    return replace(small, spec=spec, execution=Execution((SHAPE.name,)))


def final(run: Run) -> Node:
    return checkpoint(run, run.spec.num_steps)


def make_data(run: Run, store: Store) -> None:
    """Make all that the run reads, on this machine."""
    build_all(store, final(run).parents())


def give_data(run: Run, store: Store, into: Store) -> None:
    """Copy all that the run reads into a bucket."""
    for parent in final(run).parents():
        for _ in mirror(resolve(store, parent), into, "chaos"):
            pass


def versions(run: Run, store: Store) -> dict[int, str]:
    """Return the data versions of the run's kept checkpoints, by step."""
    return {step: resolve(store, checkpoint(run, step)).data_version for step in run.spec.saved_steps()}


def compiled_in(folder: Path) -> dict[str, str]:
    """Return variables for a compilation cache that a host's next process reuses. Entries are written in place: one folder a
    host.
    """
    return {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}


def gang_of_processes(launch: LaunchRequest, environment: Mapping[str, str] | None = None) -> LaunchRecord:
    """Launch the hosts of a gang as child processes of this one. Raises: RuntimeError with the end of their log."""
    address = f"127.0.0.1:{free_port()}"
    gang = {PROCESSES: str(HOSTS), COORDINATOR: address, "JAX_COORDINATOR_BIND_ADDRESS": address, "PYTHONPATH": str(ROOT)}
    launch.log_path.parent.mkdir(parents=True, exist_ok=True)
    with launch.log_path.open("a") as log:
        command = [sys.executable, "-m", launch.module, str(launch.job_path)]
        base = {**os.environ, **gang, **(environment or {})}
        hosts = [
            subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**base, INDEX: str(index)})
            for index in range(HOSTS)
        ]
        codes = [host.wait() for host in hosts]
    if any(codes):
        raise RuntimeError(f"{launch.name}: its hosts ended with {codes}: {launch.log_path.read_text()[-2000:]}")
    return LaunchRecord("child processes", "this machine", (Attempt(1, address, 0.0, "done"),))


def add_node(kubelet: Kubelet, name: str) -> None:
    """Add a node that takes one pod of the gang: the real scheduler counts its GPUs."""
    kubelet.add_node(name, SHAPE.node_selector, {"nvidia.com/gpu": "8", "rdma/ib": "1"}, SHAPE.taints)
