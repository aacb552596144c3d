"""Several processes of one job: what the environment says, and two that really meet."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.processes import COORDINATOR, INDEX, PROCESSES, Gang, gang_of

ROOT = Path(__file__).resolve().parents[2]
MEET = """
import os
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
from trainer.processes import join, refuse_gang

assert join(os.environ) == 2
print(multihost_utils.process_allgather(jnp.array([10 + jax.process_index()])).ravel().tolist())
refuse_gang(jax.process_count())
"""


def test_the_environment_of_a_launcher_is_read() -> None:
    assert gang_of({}) is None
    assert gang_of({PROCESSES: "1"}) is None
    assert gang_of({PROCESSES: "gke-tpu"}) is None
    assert gang_of({PROCESSES: "2", INDEX: "1", COORDINATOR: "first:8476"}) == Gang(2, 1, "first:8476")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({PROCESSES: "2", COORDINATOR: "a:1"}, "MARIN_PROCESSES is 2, and MARIN_PROCESS_INDEX is not set"),
        ({PROCESSES: "2", INDEX: "2", COORDINATOR: "a:1"}, "MARIN_PROCESS_INDEX is 2; .* from 0 to 1"),
        ({PROCESSES: "2", INDEX: "", COORDINATOR: "a:1"}, "both must be whole numbers"),
        ({PROCESSES: "2", INDEX: "0", COORDINATOR: "a"}, "MARIN_COORDINATOR is 'a'; it must be host:port"),
    ],
)
def test_an_odd_environment_names_the_variable(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gang_of(environment)


def test_two_processes_meet_and_neither_trains_the_run_twice() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    shared = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_COORDINATOR_BIND_ADDRESS": address}
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEET], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=shared | {PROCESSES: "2", INDEX: str(index), COORDINATOR: address},
        )
        for index in range(2)
    ]  # fmt: skip
    answers = [member.communicate(timeout=240) for member in members]
    for out, errors in answers:
        assert out.strip().endswith("[10, 11]"), errors
        assert "this trainer runs in one process, and 2 have met" in errors
    assert all(member.returncode != 0 for member in members)
