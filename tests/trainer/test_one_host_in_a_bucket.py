"""A run with checkpoints in a bucket: what it writes, and what it does when an object is missing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_run
from gcs_server import Fault, GcsServer
from tiny_run import at_step, job_in_bucket

from lineage.artifact.store import Store
from lineage.jobs.job import read_job
from lineage.storage.files import RootGoneError
from trainer.running import Running
from trainer.train import train

SHORT = replace(tiny_run.SHORT, save_every_steps=4)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def test_a_checkpoint_that_lacks_an_object_is_named_and_the_one_before_it_is_used(
    gcs: GcsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_in_bucket(tmp_path, SHORT, Store(gcs.bucket("lacks"), scratch_folder=str(tmp_path / "scratch")))
    whole = train(job)
    job.store.delete(whole)
    newest = at_step(job, 8)
    assert newest is not None
    job.store.storage.delete(f"{newest.spec.address}/{newest.manifest.data_folder}/optimizer.safetensors")
    with caplog.at_level("INFO", "trainer"):
        assert train(job).data_version == whole.data_version
    assert "there is no" in caplog.text and "optimizer.safetensors" in caplog.text
    assert "trying the checkpoint before it" in caplog.text and "resuming tiny at step 4" in caplog.text


def test_metrics_and_traces_outlive_the_machine(gcs: GcsServer, tmp_path: Path) -> None:
    job = job_in_bucket(tmp_path, SHORT, Store(gcs.bucket("records"), scratch_folder=str(tmp_path / "scratch")))
    train(job, Running(trackers=("tensorboard",), profile=(1, 2)))
    names = [
        name for name in gcs.names("records") if name.startswith(f".work/records/runs/tiny/checkpoint/{job.spec.version}/")
    ]
    (lines,) = [name for name in names if name.endswith("/metrics.jsonl")]
    rows = (job.store.storage.read_text(lines) or "").splitlines()
    assert [json.loads(line).get("step") for line in rows] == [None, *range(1, 13)]
    assert [name for name in names if "/tensorboard/" in name and ".tfevents." in name]
    assert [name for name in names if "/profile/" in name and name.endswith(".xplane.pb")]


def test_a_bucket_that_vanishes_is_named(gcs: GcsServer, tmp_path: Path) -> None:
    """It vanishes in the middle of a run, or before one. The error does not call it a missing input."""
    job = job_in_bucket(tmp_path, SHORT, Store(gcs.bucket("vanishes"), scratch_folder=str(tmp_path / "scratch")))

    def vanish() -> None:
        del gcs.objects.buckets["vanishes"]
        for held in [held for held in gcs.objects.objects if held[0] == "vanishes"]:
            del gcs.objects.objects[held]

    gcs.faults.append(Fault("upload", gcs.counts["upload"] + 1, "call", action=vanish))
    gone = "gs://vanishes: the bucket does not exist.*MARIN_ROOT"
    with pytest.raises(RootGoneError, match=gone):
        train(job)
    with pytest.raises(RootGoneError, match=gone):
        read_job(tmp_path / "job.json")
    with pytest.raises(RootGoneError, match=gone):
        list(job.store.artifacts())
