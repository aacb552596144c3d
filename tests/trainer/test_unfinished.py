"""Remains of an unfinished run: other inputs are refused, remains of a finished run are deleted."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_run import SHORT, job_of

from lineage.artifact.store import Artifact
from lineage.jobs.job import Job
from trainer.saving import Saver, checkpoint_spec, rolling_store
from trainer.signals import PreemptedError, Stop
from trainer.train import train


def preempted(job: Job) -> Artifact:
    """A run that was asked to leave at once; its rolling checkpoint."""
    stop = Stop()
    stop.requested.set()
    with pytest.raises(PreemptedError):
        train(job, stop=stop)
    (rolling,) = rolling_store(job.store).artifacts()
    return rolling


def with_config(job: Job, **changes: object) -> Job:
    config = {**job.spec.config, "run": {**job.spec.config["run"], **changes}}
    return replace(job, spec=replace(job.spec, config=config))


def test_other_inputs_than_an_unfinished_run_had_are_refused_until_it_is_cleared_away(tmp_path: Path) -> None:
    job = job_of(tmp_path, SHORT)
    rolling = preempted(job)
    (mixture,) = job.spec.inputs
    other = replace(job, spec=replace(job.spec, inputs=(replace(mixture, data_version="0" * 32),)))
    with pytest.raises(ValueError, match="an unfinished run of that name") as refused:
        train(other)
    for detail in (rolling.spec.version, checkpoint_spec(other.spec, 1).version, f"`rm -r {rolling.uri}`"):
        assert detail in str(refused.value)
    assert f"inputs.mixture.data version is '{mixture.data_version}' there, '{'0' * 32}' here" in str(refused.value)
    slower = with_config(job, seed=1)
    with pytest.raises(ValueError, match=re.escape("config.run.seed is 0 there, 1 here")):
        train(slower)
    shutil.rmtree(rolling.uri)
    assert train(slower).manifest.extra["checkpoint"]["step"] == 12


def test_a_run_of_another_day_is_another_run(tmp_path: Path) -> None:
    job = job_of(tmp_path, SHORT)
    preempted(replace(job, spec=replace(job.spec, partition="2026-11-21")))
    today = with_config(replace(job, spec=replace(job.spec, partition="2026-11-22")), seed=1)
    assert train(today).manifest.extra["checkpoint"]["step"] == 12


def test_what_a_finished_run_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, SHORT)
    preempted(job)
    with monkeypatch.context() as killed:
        killed.setattr(Saver, "_rolling", lambda self: [])
        killed.setattr(Saver, "forget_rolling", lambda self: None)  # as a kill after the commit does
        train(job)
    assert len(list(rolling_store(job.store).artifacts())) == 1
    train(with_config(job, seed=1))
    assert not list(rolling_store(job.store).artifacts())


def test_a_state_that_was_trained_from_other_inputs_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, SHORT)
    rolling = preempted(job)
    state = json.loads(rolling.file("state.json").read_text())
    state["inputs"][0]["data_version"] = "0" * 32
    with job.writing(checkpoint_spec(job.spec, 1)) as out:  # the kept one of a step is taken
        shutil.copytree(rolling.folder(), out.folder, dirs_exist_ok=True)
        (out.folder / "state.json").write_text(json.dumps(state))
        out.extra["checkpoint"] = rolling.manifest.extra["checkpoint"]
    with pytest.raises(
        ValueError, match=rf"other inputs than its manifest says: inputs\[0\].data_version is '{'0' * 32}' there"
    ):
        train(job)
