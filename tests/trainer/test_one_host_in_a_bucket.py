"""A run whose checkpoints lie in a bucket: what it does when something of them is not there."""

from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import GcsServer
from tiny_run import RUN, at_step, job_in_bucket

from lineage.store import Store
from trainer.train import train

SHORT = replace(RUN, num_steps=6, save_every_steps=2)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def test_a_checkpoint_that_lacks_an_object_is_named_and_the_one_before_it_is_used(
    gcs: GcsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_in_bucket(tmp_path, SHORT, Store(gcs.bucket("lacks"), scratch_folder=str(tmp_path / "scratch")))
    whole = train(job)
    job.store.delete(whole)
    newest = at_step(job, 4)
    assert newest is not None
    job.store.storage.delete(f"{newest.spec.address}/{newest.manifest.data_folder}/optimizer.safetensors")
    with caplog.at_level("INFO", "trainer"):
        assert train(job).data_version == whole.data_version
    assert "there is no" in caplog.text and "optimizer.safetensors" in caplog.text
    assert "the checkpoint before it is tried" in caplog.text and "resuming tiny at step 2" in caplog.text
