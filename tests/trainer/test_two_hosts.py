"""One run on two processes: losses equal to one process, after a lost host and on other meshes."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_run import ROOT, RUN, at_step, ended, job_of, log_of, metrics_of, started

from lineage.jobs.job import Job
from trainer.array_files import open_arrays
from trainer.scoring import load_scorer
from trainer.spec.optimizers import EmaConfig
from trainer.train import train

SPEC = replace(RUN, num_steps=14, save_every_steps=5, microbatch_size=2, ema=EmaConfig(0.9))
TOLERANCE = {"rtol": 2e-5, "atol": 0.0}
"""Of losses between meshes: sums in another order, over 14 steps at a rate of 1e-2. What was seen: 3e-7."""
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "MARIN_HEARTBEAT_SECONDS": "600"}
"""Where no host is lost, a pause of a machine must not count as a loss."""
ENDS_SECONDS = 240
"""All processes must have ended by then. JAX's farewell waits 300 s for a peer."""
ON_A_MESH = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job
from trainer.spec.mesh import MeshShape
from trainer.running import Running
from trainer.train import train
train(read_job(Path(sys.argv[1])), Running(mesh=MeshShape.parse(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The run in one process on one device."""
    job = job_of(tmp_path_factory.mktemp("one"), SPEC)
    train(job)
    return job


def ended_with(root: Path, fault: str) -> tuple[Job, list[int]]:
    """The run in two processes, of which a fault ends one at step 10, with their exit codes; step 5 is saved."""
    job = job_of(root, SPEC)
    codes = ended(started(root, QUICK | {"MARIN_FAULTS": fault, "MARIN_HEARTBEAT_SECONDS": "30"}, processes=2), ENDS_SECONDS)
    assert at_step(job, 5) is not None and at_step(job, 14) is None
    return job, codes


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Job]:
    """The run in two processes, of which the second failed at step 10; both were started again, from step 5.

    The host that fails does not wait in JAX's farewell for a peer that waits for it; its peer takes it for dead.
    """
    root = tmp_path_factory.mktemp("two")
    job, codes = ended_with(root, "disk-full@10/1")
    assert codes[1] == 1 and codes[0] != 0, "a host that lost its peer ends too"
    log = log_of(root, 1)
    assert "this process failed; it ends at once" in log and "No space left on device (injected)" in log
    assert ended(started(root, QUICK, processes=2)) == [0, 0], log_of(root)
    return root, job


def test_two_hosts_have_the_losses_of_one_though_a_host_was_lost(one: Job, two: tuple[Path, Job]) -> None:
    root, job = two
    resumed = [re.findall(rf"resuming {SPEC.name} at step (\d+)", log_of(root, index)) for index in range(2)]
    assert resumed[0] == resumed[1] == ["5"]
    wanted, actual = (metrics_of(checkpoint) for checkpoint in (at_step(one, 14), at_step(job, 14)) if checkpoint is not None)
    np.testing.assert_allclose(actual["loss_nats"], wanted["loss_nats"], **TOLERANCE)
    assert actual["step"].to_list() == list(range(1, 15))


@pytest.mark.slow
def test_parts_that_a_killed_attempt_left_are_gone(one: Job, tmp_path: Path) -> None:
    """The first host is killed while it saves, with the other's part in its hands."""
    job, codes = ended_with(tmp_path, "kill-in-save@10/0")
    assert codes[0] == -9 and codes[1] != 0, "a host that lost its peer ends too"
    assert list((tmp_path / ".work" / "parts").rglob("1.json")), "a part that was handed over and not committed"
    assert ended(started(tmp_path, QUICK, processes=2)) == [0, 0], log_of(tmp_path)
    wanted, actual = (metrics_of(checkpoint) for checkpoint in (at_step(one, 14), at_step(job, 14)) if checkpoint is not None)
    np.testing.assert_allclose(actual["loss_nats"], wanted["loss_nats"], **TOLERANCE)
    work = tmp_path / ".work"
    assert not [path for name in ("parts", "handing_over") for path in work.rglob(f"{name}/**/*") if path.is_file()]


def test_each_host_writes_its_own_part_and_the_record_says_on_which_mesh(one: Job, two: tuple[Path, Job]) -> None:
    final, alone = at_step(two[1], 14), at_step(one, 14)
    assert final is not None and alone is not None
    facts = final.manifest.extra["checkpoint"]
    assert facts["mesh"] == {"processes": 2, "slice": 1, "data": 2, "expert": 1, "tensor": 1}
    parts = [path.stat().st_size for path in final.files(".safetensors") if path.name.startswith("optimizer.")]
    assert len(parts) == 2 and max(parts) < 0.75 * sum(parts)
    sharded, whole = open_arrays(final, "optimizer").whole(), open_arrays(alone, "optimizer").whole()
    assert sharded.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(sharded[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    for weights in ("raw", "ema"):
        scores = [load_scorer(each, weights).token_nll([np.arange(16)])[0] for each in (final, alone)]
        np.testing.assert_allclose(*scores, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["data=2,tensor=2"])
def test_what_two_hosts_saved_goes_on_over_other_meshes(mesh: str, one: Job, two: tuple[Path, Job], tmp_path: Path) -> None:
    """Four devices in one process take over at step 10 of a copy."""
    copy = tmp_path / "copy"
    shutil.copytree(two[0], copy)
    moved = job_of(copy, SPEC)
    final = at_step(moved, 14)
    assert final is not None
    moved.store.delete(final)
    environment = os.environ | QUICK | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ran = subprocess.run(
        [sys.executable, "-c", ON_A_MESH, str(copy / "job.json"), mesh],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    made, wanted = at_step(moved, 14), at_step(one, 14)
    assert made is not None and wanted is not None, ran.stderr
    assert made.manifest.extra["checkpoint"]["mesh"]["tensor"] == 2
    np.testing.assert_allclose(metrics_of(made)["loss_nats"], metrics_of(wanted)["loss_nats"], **TOLERANCE)
