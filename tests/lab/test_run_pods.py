"""Runs as pods: dagster-k8s' K8sRunLauncher with the deployed rights on a real API server, its worker launching a job of ours.

The image's own packages run everything (`make image-test`). Of `deploy/dagster.yaml` only the daemon's way to the API server is
another: it is in no pod here.
"""

import base64
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests
import yaml
from dagster_processes import DagsterProcesses
from image_environment import image_python
from launches import IMAGE, ROOT, until
from pod_process import SECRETS, Image
from run_pod_location import LAUNCH, PRINTED, SAID, WAIT
from whole_lab import NAMESPACE, WholeLab

from resources.cluster import CONFIG_MAPS, JOBS, PODS

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
RUN_IMAGE = "marin:run"
LOGS = "marin-logs"
PYTHON_PATH = ":".join(str(ROOT / part) for part in (".", "tests/lab"))
ENDED = "('SUCCESS', 'FAILURE', 'CANCELED')"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLab]:
    """Yield a lab whose nodes take run workers too, with the objects of `deploy/kubernetes` and the chart in the namespace."""
    path = f"{image_python().parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    images = {RUN_IMAGE: Image(ROOT, {"PATH": path})}
    with WholeLab(tmp_path_factory.mktemp("lab"), {"PYTHONPATH": PYTHON_PATH}, images) as lab:
        lab.kubelet.add_node("on-demand-0", {"marin.community/pool": "on-demand"})
        lab.bucket.bucket(LOGS)
        settings = {"image": IMAGE, "namespace": NAMESPACE, "env": {"PYTHONPATH": PYTHON_PATH}}
        config_map(lab, "marin-environment", variables(lab))
        config_map(lab, "marin-cluster", {"cluster.yaml": yaml.safe_dump(settings)})
        config_map(lab, "dagster-instance", {"dagster.yaml": (ROOT / "deploy" / "dagster.yaml").read_text()})
        password = {"MARIN_PG_PASSWORD": base64.b64encode(b"trusted").decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "marin-postgresql"}, "data": password}
        lab.admin.create(SECRETS, secret)
        yield lab


def config_map(lab: WholeLab, name: str, data: Mapping[str, str]) -> None:
    lab.admin.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)})


def variables(lab: WholeLab) -> dict[str, str]:
    """Return what `deploy/kubernetes/environment.yaml` gives to every process, for this lab, and where its bucket is."""
    given = lab.environment()
    names = ("MARIN_ROOT", "MARIN_PG_HOST", "MARIN_PG_PORT", "MARIN_PG_USER", "MARIN_PG_DATABASE", "STORAGE_EMULATOR_HOST")
    here = {"MARIN_NAMESPACE": NAMESPACE, "MARIN_IMAGE": RUN_IMAGE, "MARIN_LOG_BUCKET": LOGS, "MARIN_SCRATCH": "/scratch"}
    return (
        {name: given[name] for name in names}
        | here
        | {"MARIN_CLUSTER": "/etc/marin-cluster/cluster.yaml", "PYTHONPATH": PYTHON_PATH}
    )


@pytest.fixture
def dagster(lab: WholeLab, tmp_path: Path) -> Iterator[DagsterProcesses]:
    """Yield a code location and a daemon with the image's packages and the rights of `marin-dagster`."""
    home = tmp_path / "home"
    home.mkdir()
    instance = yaml.safe_load((ROOT / "deploy" / "dagster.yaml").read_text())
    instance["run_launcher"]["config"] |= {
        "load_incluster_config": False,
        "kubeconfig_file": str(lab.kubeconfig_of("marin-dagster")),
    }
    (home / "dagster.yaml").write_text(yaml.safe_dump(instance))
    environment = {
        **lab.environment(),
        **variables(lab),
        "DAGSTER_HOME": str(home),
        "MARIN_CLUSTER": str(lab.folder / "cluster.yaml"),
    }
    with DagsterProcesses("run_pod_location", environment, tmp_path, str(image_python())) as running:
        yield running


def test_a_run_is_a_pod_that_launches_a_job(lab: WholeLab, dagster: DagsterProcesses) -> None:
    dagster.launch(LAUNCH, {})
    until(lambda: lab.postgres.rows(f"select status from runs where status in {ENDED}"), "the run ends")
    worker, job = lab.kubelet.history
    run_log = b"".join(worker.log_lines("", 0) or []).decode()
    assert lab.postgres.rows("select status from runs") == [("SUCCESS",)], run_log
    accounts = [pod.raw["spec"]["serviceAccountName"] for pod in (worker, job)]
    assert (worker.name.startswith("dagster-run-"), accounts) == (True, ["marin-runs", "marin-job"])
    assert PRINTED in b"".join(job.log_lines("", 0) or []).decode()
    (event,) = lab.postgres.rows("select event from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION'")
    assert PRINTED in event[0]
    (log,) = [name for name in objects(lab) if name.endswith(".out")]
    assert SAID in requests.get(f"{lab.bucket.url}/download/storage/v1/b/{LOGS}/o/{log.replace('/', '%2F')}?alt=media").text


CANCEL = """
import sys
import dagster as dg
with dg.DagsterInstance.get() as instance:
    assert instance.run_launcher.terminate(sys.argv[1]), "the launcher could not end the run"
"""
"""The webserver's call when a person cancels a run."""


def test_a_user_who_cancels_a_run_ends_its_pod_and_the_job_that_it_launched(lab: WholeLab, dagster: DagsterProcesses) -> None:
    dagster.launch(WAIT, {})
    rows = f"select run_id, status from runs where pipeline_name = '{WAIT}'"

    def runs_now() -> bool:
        return any(
            PRINTED.encode() in b"".join(pod.log_lines("", 0) or []) for pod in lab.kubelet.history if "waiting" in pod.name
        )

    until(lambda: runs_now() or (lab.postgres.rows(rows) or [("", "")])[0][1] in ENDED, "its job runs")
    ((run_id, status),) = lab.postgres.rows(rows)
    assert status == "STARTED", b"".join(line for pod in lab.kubelet.history for line in pod.log_lines("", 0) or []).decode()
    subprocess.run([dagster.python, "-c", CANCEL, run_id], env=dict(dagster.environment), check=True)
    until(lambda: lab.postgres.rows(rows)[0][1] in ENDED, "the run ends")
    assert lab.postgres.rows(rows) == [(run_id, "CANCELED")]
    ours = ("waiting", run_id[:8])
    until(lambda: not [pod for pod in lab.admin.find(PODS) if any(word in pod["metadata"]["name"] for word in ours)], "pods go")
    assert not [job for job in lab.admin.find(JOBS) if any(word in job["metadata"]["name"] for word in ours)]


def objects(lab: WholeLab) -> list[str]:
    """Return the names of the objects in the bucket of logs."""
    answer = requests.get(f"{lab.bucket.url}/storage/v1/b/{LOGS}/o", timeout=30)
    return [item["name"] for item in answer.json().get("items", [])]
