"""Resume in real processes: kills at any step and during a save, SIGTERM, damaged checkpoints, full disks."""

import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_run import RUN, SHORT, at_step, ended, job_of, log_of, started

from lineage.artifact.store import Artifact
from lineage.jobs.job import Job
from lineage.shards.run import DiskFullError
from lineage.writing.working_folder import try_lock
from trainer.faults import parse_faults
from trainer.running import Running
from trainer.saving import checkpoint_spec, rolling_store
from trainer.signals import LEFT, PreemptedError, Stop
from trainer.train import train

OFTEN = {"MARIN_ROLLING_SECONDS": "0.01"}
"""A rolling checkpoint is due whenever the one before is written."""


def rolling_steps(job: Job) -> list[int]:
    return sorted(int(save.spec.config["step"]) for save in rolling_store(job.store).artifacts())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The run of one process that nothing happened to."""
    root = tmp_path_factory.mktemp("undisturbed")
    job = job_of(root, RUN)
    assert ended(started(root)) == [0], log_of(root)
    last = at_step(job, RUN.num_steps)
    assert last is not None
    assert rolling_steps(job) == []
    assert [artifact.spec.partition for artifact in job.store.artifacts("runs")] == ["step-00000040"]  # the final one alone
    return last


@pytest.mark.slow
def test_kills_at_random_steps_and_inside_a_save_cost_nothing_but_time(tmp_path: Path, undisturbed: Artifact) -> None:
    """Each start is killed a few steps on: between steps, with a save half written, and once with no checkpoint at all."""
    steps = random.Random(time.time_ns())
    job = job_of(tmp_path, RUN)
    faults = [f"kill@{steps.randint(1, 12)}", f"kill@{steps.randint(16, 24)}", "kill-in-save@40"]
    for fault in faults:
        assert ended(started(tmp_path, OFTEN | {"MARIN_FAULTS": fault})) == [-signal.SIGKILL], (fault, faults)
        assert at_step(job, RUN.num_steps) is None, (fault, faults)
    assert ended(started(tmp_path, OFTEN)) == [0], faults
    final = at_step(job, RUN.num_steps)
    assert "resuming tiny at step" in log_of(tmp_path)
    assert final is not None and final.data_version == undisturbed.data_version, faults
    assert rolling_steps(job) == []


@pytest.mark.slow
def test_sigterm_saves_and_leaves_with_its_own_code(tmp_path: Path) -> None:
    job = job_of(tmp_path, RUN)
    assert ended(started(tmp_path, {"MARIN_FAULTS": "term@7"})) == [LEFT]
    saved = rolling_steps(job)
    assert len(saved) == 1 and 8 <= saved[0] <= 7 + 9
    assert f"asked to leave; checkpoint saved at step {saved[0]}" in log_of(tmp_path)
    assert "--xla_gpu_deterministic_ops=true" in log_of(tmp_path), "or a GPU would resume near the run, and not it"
    final = train(job)
    assert final.manifest.extra["checkpoint"]["step"] == RUN.num_steps


def test_sigterm_in_the_first_steps_ends_the_run_at_the_next_one(tmp_path: Path) -> None:
    """Before it is known how long a step takes, none is started ahead of what has been read."""
    job, stop, before = job_of(tmp_path, SHORT), Stop(), signal.getsignal(signal.SIGTERM)
    stop.listen()
    try:
        with pytest.raises(PreemptedError, match="checkpoint saved at step 2"):
            train(job, Running(faults=parse_faults("term@1")), stop)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rolling_steps(job) == [2]


def test_who_is_asked_before_the_first_step_saves_that_and_leaves(tmp_path: Path) -> None:
    job, stop = job_of(tmp_path, SHORT), Stop()
    stop.requested.set()
    with pytest.raises(PreemptedError, match="checkpoint saved at step"):
        train(job, stop=stop)
    assert len(rolling_steps(job)) == 1


def test_scratch_of_a_killed_rolling_save_goes_when_its_run_ends_unless_somebody_writes_there(tmp_path: Path) -> None:
    job = job_of(tmp_path, SHORT)
    work = rolling_store(job.store).scratch / "writing"
    killed, living = (work / checkpoint_spec(job.spec, step).version for step in (2, 3))
    other = work / "0123456789abcdef"
    for folder in (killed, living, other):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(100))
    with try_lock(work / f"{living.name}.lock") as held:
        assert held
        train(job)
    assert not killed.exists() and not killed.with_name(f"{killed.name}.lock").exists()
    assert living.exists() and other.exists(), "what another writer holds, or another run left, is not ours"


def test_a_damaged_checkpoint_is_named_made_again_from_the_one_before_it_and_takes_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(tmp_path, replace(SHORT, save_every_steps=2))
    whole = train(job).data_version
    job.store.delete(at_step(job, 12))  # type: ignore[arg-type]
    damaged = at_step(job, 10)
    assert damaged is not None
    arrays = damaged.folder() / "model.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-4] + b"oops")
    with caplog.at_level("INFO", "trainer"):
        assert train(job).data_version == whole
    assert "model.safetensors has digest" in caplog.text and "resuming tiny at step 8" in caplog.text
    mended = at_step(job, 10)
    assert mended is not None and mended.data_version == damaged.data_version
    mended.verify()


def test_a_save_that_fails_ends_the_run_loudly_and_leaves_no_half_of_it(tmp_path: Path) -> None:
    job = job_of(tmp_path, replace(SHORT, keep_steps=(4,)))
    with pytest.raises(DiskFullError, match=r"no room for .* are free"):
        train(job, Running(faults=parse_faults("disk-full@4")))
    assert list(job.store.artifacts("runs")) == []


@pytest.mark.parametrize(
    ("every", "keep", "steps"),
    [(None, (), (40,)), (15, (), (15, 30, 40)), (None, (7, 40), (7, 40)), (20, (3,), (3, 20, 40))],
)
def test_which_steps_are_kept(every: int | None, keep: tuple[int, ...], steps: tuple[int, ...]) -> None:
    assert replace(RUN, save_every_steps=every, keep_steps=keep).saved_steps() == steps


def test_a_keep_list_outside_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"run.keep_steps is \(41,\); it must be ascending, in 1..40"):
        replace(RUN, keep_steps=(41,))
