"""The environment that the image has, made from its lock, and the production instance in it (`make image-test`)."""

import os
import subprocess
from pathlib import Path

import pytest
from gcs_server import gcs_server
from image_environment import image_python
from postgres import postgres

pytestmark = pytest.mark.cluster
REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_production_instance_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "deploy" / "dagster.yaml").read_text())
    with postgres() as database, gcs_server() as bucket:
        bucket.bucket("logs")
        told = {
            "STORAGE_EMULATOR_HOST": bucket.url,
            "MARIN_LOG_BUCKET": "logs",
            "MARIN_NAMESPACE": "marin",
            "MARIN_IMAGE": "registry/marin-lab:0",
            "MARIN_PG_HOST": database.host,
            "MARIN_PG_PORT": str(database.port),
            "MARIN_PG_USER": database.user,
            "MARIN_PG_PASSWORD": "trusted",
            "MARIN_PG_DATABASE": database.database,
        }
        command = [str(image_python()), str(Path(__file__).with_name("in_the_image.py")), str(tmp_path)]
        ended = subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "logs: GCSComputeLogManager" in ended.stdout
        assert "run: True" in ended.stdout
        assert "launcher: Service host/port is not set." in ended.stdout, "dagster-k8s took its configuration"
        assert database.rows("select status from runs") == [("SUCCESS",)]
        (out,) = (name for name in bucket.names("logs") if name.startswith("compute-logs/") and name.endswith(".out"))
        assert b"said in the run" in bucket.objects.objects["logs", out].data
