"""Multi-process jobs: settings from the environment (test_two_hosts.py trains with two)."""

import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from jax._src.clusters.cloud_tpu_cluster import GkeTpuCluster
from tiny_run import ROOT

from trainer.processes import COORDINATOR, GATHER, INDEX, PROCESSES, Gang, gang_of
from trainer.signals import LEFT


def test_the_environment_of_a_launcher_is_read() -> None:
    assert gang_of({}) is None
    assert gang_of({PROCESSES: "1"}) is None
    assert gang_of({PROCESSES: "gke-tpu"}) is None
    assert gang_of({PROCESSES: "2", INDEX: "1", COORDINATOR: "first:8476"}) == Gang(2, 1, "first:8476")


@pytest.mark.parametrize(
    ("slices", "addresses"), [(1, "TPU_WORKER_HOSTNAMES"), (2, "TPU_WORKER_HOSTNAMES"), (2, "TPU_PROCESS_ADDRESSES")]
)
def test_hosts_of_tpu_slices_are_counted_as_jax_counts_them(
    monkeypatch: pytest.MonkeyPatch, slices: int, addresses: str
) -> None:
    """By what GKE sets in their pods. For what a lone slice has not, JAX would ask the metadata server (its issue 40854)."""
    seen = []
    for slice_id, worker in product(range(slices), range(4)):
        port = ":8471" if addresses == "TPU_PROCESS_ADDRESSES" else ""
        variables = {
            addresses: ",".join(f"a-host-{slice_id}-{host}.a{port}" for host in range(4)),
            "TPU_WORKER_ID": str(worker),
        }
        many = {"NUM_SLICES": str(slices), "SLICE_ID": str(slice_id), "COORDINATOR_ADDRESS": "a-host-0-0.a:8080"}
        variables |= {f"MEGASCALE_{name}": value for name, value in many.items() if slices > 1}
        gang = gang_of({PROCESSES: "gke-tpu", **variables})
        assert gang is not None
        seen.append(gang.index)
        assert (gang.count, gang.coordinator) == (4 * slices, "a-host-0-0.a:8482")
        with monkeypatch.context() as pod:
            for name, value in {"MEGASCALE_NUM_SLICES": "1", "MEGASCALE_SLICE_ID": "0", **variables}.items():
                pod.setenv(name, value)
            assert (GkeTpuCluster.get_process_count(), GkeTpuCluster.get_process_id()) == (gang.count, gang.index)
    assert seen == list(range(4 * slices))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {PROCESSES: "gke-tpu", "TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0", "MEGASCALE_NUM_SLICES": "2"},
            "MEGASCALE_NUM_SLICES is 2, but MEGASCALE_SLICE_ID is not set",
        ),
        ({PROCESSES: "2", COORDINATOR: "a:1"}, "MARIN_PROCESSES is 2, but MARIN_PROCESS_INDEX is not set"),
        ({PROCESSES: "2", INDEX: "2", COORDINATOR: "a:1"}, "MARIN_PROCESS_INDEX is 2; .* from 0 to 1"),
        ({PROCESSES: "2", INDEX: "", COORDINATOR: "a:1"}, "both must be whole numbers"),
        ({PROCESSES: "2", INDEX: "0", COORDINATOR: "a"}, "MARIN_COORDINATOR is 'a'; it must be host:port"),
    ],
)
def test_an_odd_environment_names_the_variable(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gang_of(environment)


def alone(folder: Path, index: int, patience: int) -> subprocess.Popen[bytes]:
    """One process of two, whose peer is never started; its output in `folder/log`."""
    address = "127.0.0.1:1" if index else "127.0.0.1:0"  # no process listens there; any free port
    variables = {PROCESSES: "2", INDEX: str(index), COORDINATOR: address, GATHER: str(patience), "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_COORDINATOR_BIND_ADDRESS": address, **variables}
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "trainer", str(folder / "never-read.json")]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_whose_peers_never_come_says_so_and_ends(index: int, tmp_path: Path) -> None:
    assert alone(tmp_path, index, patience=1).wait(120) == 1
    reports = [line for line in (tmp_path / "log").read_text().splitlines() if "peers never came within 1 s" in line]
    assert len(reports) == 1 and f"process {index} of 2, meeting at 127.0.0.1" in reports[0]


def test_a_process_that_waits_for_its_peers_leaves_when_it_is_asked(tmp_path: Path) -> None:
    waiting = alone(tmp_path, 0, patience=600)
    end = time.monotonic() + 120
    while "meeting at" not in (tmp_path / "log").read_text() and time.monotonic() < end:
        time.sleep(0.1)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(60) == LEFT
    assert "asked to leave before all had come" in (tmp_path / "log").read_text()
