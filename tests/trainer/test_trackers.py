"""Trackers: every step once, one run for each attempt, a failing tracker dropped; the real packages."""

import json
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_run
from tiny_run import job_of, metrics_of

from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import Job, JobOptions, job_folder, run_job
from lineage.shards.run import DiskFullError
from trainer.faults import parse_faults
from trainer.running import Running, running_of
from trainer.signals import PreemptedError, Stop
from trainer.spec.mesh import MeshShape
from trainer.trackers import JsonLines, Trackers, Values, attempts_of, open_trackers
from trainer.train import train

SHORT = replace(tiny_run.SHORT, save_every_steps=8)


def test_every_step_has_a_line_and_watched_ones_the_norms_of_every_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    job = job_of(tmp_path, SHORT)
    made = train(job, Running(trackers=("tensorboard", "wandb"), watch_steps=2, profile=(2, 1)))
    folder = job_folder(job)
    first, *lines = attempts_of(folder / "metrics.jsonl")
    assert first["mesh"]["data"] == 1 and first["spec"]["name"] == "tiny"
    assert [line["step"] for line in lines] == list(range(1, 13))
    kept = metrics_of(made)
    assert [line["train/loss"] for line in lines] == kept["loss_nats"].to_list()
    for line, norm in zip(lines, kept["grad_norm"].to_list(), strict=True):
        assert line["grad/norm/total"] == pytest.approx(norm, rel=1e-4)
        assert line["throughput/input_stall_seconds"] >= 0 and line["memory/host_bytes"] > 1e7
    watched = [line for line in lines if "params/norm/blocks/0/attention/w_q" in line]
    assert [line["step"] for line in watched] == [2, 4, 6, 8, 10, 12]
    for kind in ("grad", "params", "updates"):
        each = [value for name, value in watched[0].items() if name.startswith(f"{kind}/norm/") and "total" not in name]
        assert np.sqrt(np.square(each).sum()) == pytest.approx(watched[0][f"{kind}/norm/total"], rel=1e-6)
    assert list((folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert list((folder / "wandb").rglob("*.wandb"))
    assert list((folder / "profile").rglob("*.xplane.pb"))


def test_a_second_attempt_is_another_run_of_the_same_group(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for attempt in ("a", "b"):
        trackers = open_trackers((), tmp_path, "r", "group", attempt, {})
        trackers.log(1, {"train/loss": float("nan")})
        trackers.finish()
        path.write_text(path.read_text() + '{"cut')  # as a kill leaves it
    records = list(attempts_of(path))
    assert [record["attempt"] for record in records] == ["a", "a", "b", "b"]
    assert {record["group"] for record in records if "group" in record} == {"group"}
    assert [record["train/loss"] for record in records if "step" in record] == ["nan", "nan"]


def test_each_attempt_is_a_run_of_its_own_at_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict] = []

    def init(**given: object) -> SimpleNamespace:
        begun.append(given)
        return SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))  # pyrefly: ignore
    job, stop = job_of(tmp_path, SHORT), Stop()
    stop.requested.set()
    with pytest.raises(PreemptedError):
        train(job, Running(trackers=("wandb",)), stop)
    train(job, Running(trackers=("wandb",)))
    first, second = begun
    assert first["id"] != second["id"] and first["group"] == second["group"] == job.spec.version
    assert (first["resume"], second["resume"]) == ("never", "never")


def test_a_tracker_that_fails_is_named_once_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken, whole = JsonLines(tmp_path / "a", "1", {}), JsonLines(tmp_path / "b", "1", {})
    broken.stream.close()
    trackers = Trackers([broken, whole])
    for step in (1, 2):
        trackers.log(step, {"x": 1.0})
    trackers.finish()
    assert caplog.text.count("JsonLines failed at step 1 and is disabled") == 1
    assert [json.loads(line).get("step") for line in (tmp_path / "b").read_text().splitlines()] == [None, 1, 2]


@dataclass
class Broken:
    """Fails when it is to finish; what had been committed by then."""

    job: Job
    seen: list[bool] = field(default_factory=list)

    def log(self, step: int, values: Values) -> None: ...

    def finish(self) -> None:
        self.seen.append(self.job.store.find(self.job.spec) is not None)
        raise ConnectionError("the metrics service is away")


def test_a_tracker_that_cannot_finish_costs_the_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last checkpoint is committed before trackers finish. If the commit fails, the run ends with that error."""
    job = job_of(tmp_path, SHORT)
    broken, whole = Broken(job), JsonLines(tmp_path / "lines", "1", {})
    monkeypatch.setattr("trainer.train.open_trackers", lambda *_: Trackers([broken, whole]))
    with pytest.raises(DiskFullError, match="no room for"):
        train(job, Running(faults=parse_faults("disk-full@12")))
    assert train(job).manifest.extra["checkpoint"]["step"] == 12
    assert broken.seen == [False, True] and whole.stream.closed
    assert caplog.text.count("Broken could not finish: the metrics service is away") == 2


def test_a_tracker_that_cannot_begin_is_named_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("api.wandb.ai does not answer")

    monkeypatch.setattr("wandb.init", refuse)
    trackers = open_trackers(("wandb",), tmp_path, "r", "group", "a", {})
    assert [type(member) for member in trackers.members] == [JsonLines]
    assert "wandb could not start and is disabled: api.wandb.ai does not answer" in caplog.text
    trackers.finish()


@pytest.mark.slow
def test_a_profiler_window_past_the_end_ends_with_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A resumed run that is already past its window warns; the process can trace again."""
    job = job_of(tmp_path, SHORT)
    with caplog.at_level("INFO", "trainer"):
        made = train(job, Running(profile=(10, 100)))
        assert "profile of steps 10 to 11 below" in caplog.text
        assert list((job_folder(job) / "profile").rglob("*.xplane.pb"))
        job.store.delete(made)
        shutil.rmtree(job_folder(job) / "profile")
        job.store.delete(train(job, Running(profile=(1, 2))))
        assert "MARIN_PROFILE asks for steps 1 to 2, this attempt takes steps 8 to 11; nothing is traced" in caplog.text
        assert not (job_folder(job) / "profile").exists()
        train(job, Running(profile=(5, 4)))
        assert "profile of steps 8 to 8 below" in caplog.text, "what is left of a window"


def test_the_environment_says_how_a_run_runs() -> None:
    options = running_of(
        {"MARIN_MESH": "data=2, tensor=2", "MARIN_TRACKERS": "wandb", "MARIN_PROFILE": "20+5", "MARIN_ROLLING_SECONDS": "1.5"}
    )
    assert (options.mesh, options.trackers, options.profile) == (MeshShape(data=2, tensor=2), ("wandb",), (20, 5))
    assert options.rolling_seconds == 1.5 and running_of({}) == Running()


@pytest.mark.slow
def test_a_job_of_a_child_process_runs_with_its_options(tmp_path: Path) -> None:
    job = job_of(tmp_path, SHORT)
    run_job("trainer", job, run_subprocess, JobOptions(arguments=("MARIN_WATCH_STEPS=3", "MARIN_MESH=data=1")))
    _, *lines = attempts_of(job_folder(job) / "metrics.jsonl")
    assert [line["step"] for line in lines if "params/norm/blocks/0/attention/w_q" in line] == [3, 6, 9, 12]


def test_the_environment_goes_before_the_options_of_a_job_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "trainer"):
        options = running_of({"MARIN_MESH": "tensor=2"}, ["MARIN_MESH=slice=2", "MARIN_WATCH_STEPS=5", "MARIN_WATCH_STEPS=7"])
    assert (options.mesh, options.watch_steps) == (MeshShape(tensor=2), 7)
    assert caplog.messages == ["MARIN_MESH=tensor=2 of the environment in place of the job's slice=2"]
    with pytest.raises(ValueError, match="argument is 'MARIN_MASH=tensor=2'; it must be NAME=VALUE, NAME one of MARIN_MESH"):
        running_of({}, ["MARIN_MASH=tensor=2"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "MARIN_MESH",
            "data=2,model=2",
            "MARIN_MESH is 'data=2,model=2'; it must be like 'data=4,tensor=2', each of slice, data",
        ),
        ("MARIN_MESH", "data=0", "MARIN_MESH: mesh.data is 0; it must be positive"),
        ("MARIN_MESH", "expert=0", "MARIN_MESH: mesh.expert is 0; it must be positive"),
        ("MARIN_TRACKERS", "mlflow", "MARIN_TRACKERS is 'mlflow'; it must be among tensorboard, wandb"),
        ("MARIN_PROFILE", "5", "MARIN_PROFILE is '5'; it must be FIRST+COUNT steps"),
        ("MARIN_ROLLING_SECONDS", "soon", "MARIN_ROLLING_SECONDS is 'soon'; it must be a number of seconds"),
        ("MARIN_WATCH_STEPS", "0", "MARIN_WATCH_STEPS is 0; it must be positive"),
        ("MARIN_FAULTS", "fire@3", "MARIN_FAULTS has 'fire@3'; faults are KIND@STEP"),
    ],
)
def test_an_odd_setting_names_variable_value_and_what_is_allowed(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        running_of({name: value})
