"""The image's environment, built from its lock, and the production instance in it (`make image-test`)."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from gcs_server import gcs_server
from image_environment import image_python
from postgres import postgres
from test_manifests import WORDS, render

pytestmark = pytest.mark.cluster
REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_production_instance_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "deploy" / "dagster.yaml").read_text())
    with postgres() as database, gcs_server() as bucket:
        bucket.bucket("logs")
        variables = {
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
        ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "logs: GCSComputeLogManager" in ended.stdout
        assert bucket.counts["bucket"], "every process asks for the bucket itself, which takes storage.buckets.get"
        assert "run: True" in ended.stdout
        assert "launcher: Service host/port is not set." in ended.stdout, "dagster-k8s took its configuration"
        assert database.rows("select status from runs") == [("SUCCESS",)]
        (out,) = (name for name in bucket.names("logs") if name.startswith("compute-logs/") and name.endswith(".out"))
        assert b"said in the run" in bucket.objects.objects["logs", out].data


def test_a_run_of_the_chart_has_its_own_account_and_a_user_can_cancel_it(tmp_path: Path) -> None:
    """dagster-k8s itself, with what the chart makes of our values and exactly the rights of `marin-dagster`."""
    rendered, kubeconfig = tmp_path / "rendered", tmp_path / "kubeconfig"
    assert render(rendered, WORDS).returncode == 0
    accounts = yaml.safe_load_all((rendered / "accounts.yaml").read_text())
    (rules,) = [m["rules"] for m in accounts if m["kind"] == "Role" and m["metadata"]["name"] == "start-runs"]
    names = {"name": "lab", "cluster": {"server": "http://127.0.0.1:1"}}
    contexts = [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]
    users = [{"name": "lab", "user": {"token": "t"}}]
    kubeconfig.write_text(yaml.safe_dump({"current-context": "lab", "clusters": [names], "contexts": contexts, "users": users}))
    script = Path(__file__).with_name("runs_in_the_image.py")
    command = [str(image_python()), str(script), str(rendered / "values.yaml"), json.dumps(rules), str(kubeconfig)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout.splitlines()[-1])
    template = outcome["job"]["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    assert pod["serviceAccountName"] == "marin-runs"
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "50Gi"}
    assert container["resources"]["limits"] == {"memory": "8Gi", "ephemeral-storage": "50Gi"}
    assert [volume["name"] for volume in pod["volumes"]].count("cluster") == 1
    assert container["envFrom"] == [{"configMapRef": {"name": "marin-environment"}}]
    assert pod["nodeSelector"] == {"marin.community/pool": "on-demand"}
    assert "dagster/run-id" in template["metadata"]["labels"], "what the network policy of runs looks for"
    assert template["metadata"]["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert outcome["terminated"] is True, "a cancel deletes the run's Job, and its pods: a Job that goes leaves them behind"
    allowed = sorted([verb, resource] for rule in rules for resource in rule["resources"] for verb in rule["verbs"])
    assert outcome["asked"] == allowed, "every right is used"


LOAD = """
import importlib
from lineage.trust.fingerprint import stage_code
from marin_assets.definitions import defs
from recipes.stages import stages
for module in ("trainer.__main__", "evals.__main__", "trainer.export.__main__", "lineage.build.shard_runner"):
    importlib.import_module(module)
codes = {stage_code(stage.module).fingerprint for stage in stages().values()}
print("loaded", len(defs.resolve_asset_graph().get_all_asset_keys()), "assets,", len(codes), "codes")
"""


def test_what_the_image_copies_is_all_that_the_code_location_and_its_jobs_need(tmp_path: Path) -> None:
    """By `.dockerignore`, with no other file of the checkout, no home and nothing of this environment."""
    for rule in (REPOSITORY / ".dockerignore").read_text().split():
        source, target = REPOSITORY / rule.removeprefix("!"), tmp_path / rule.removeprefix("!")
        if rule.startswith("!") and source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif rule.startswith("!") and source.exists():  # lab.yaml is the operator's
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": "/nonexistent", "MARIN_ROOT": "gs://a-bucket"}
    ended = subprocess.run(
        [str(image_python()), "-c", LOAD], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("loaded ")
