"""Roles of `deploy/` on a real API server: a run worker can do what launchers do and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from launches import launch_of, launcher_of

from resources.cluster import CONFIG_MAPS, JOBS, ApiError, Cluster

pytestmark = pytest.mark.cluster
ACCOUNTS_FILE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "accounts.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
ACCOUNTS = "/api/v1/namespaces/{namespace}/serviceaccounts"


@pytest.fixture
def runs(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with the rights of `marin-runs`, in this test's namespace, by the deployed roles."""
    text = ACCOUNTS_FILE.read_text().replace("@PROJECT_ID@", "a-project").replace("namespace: marin", "namespace: HERE")
    for manifest in yaml.safe_load_all(text.replace("HERE", cluster.namespace)):
        if manifest["kind"] in ("Role", "RoleBinding"):
            cluster.create(f"{RBAC}/{manifest['kind'].lower()}s", manifest)
    cluster.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "marin-runs"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = cluster.create(f"{ACCOUNTS}/marin-runs/token", request)["status"]["token"]
    yield replace(cluster, token=token, client_cert=None)


def test_a_run_worker_can_launch_watch_try_again_and_stop_jobs(runs: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, attempts=[[{"exit": 137}], [{"print": "two"}]], counter=str(tmp_path / "n"))
    launched = launcher_of(runs, tmp_path)(launch)
    assert [attempt.number for attempt in launched.attempts] == [1, 2], "deleting and annotating a failed attempt too"
    assert launch.log_path.read_text() == "two\n"
    runs.delete(JOBS, launched.place.rpartition("/")[2])


def test_it_can_read_nothing_else(runs: Cluster) -> None:
    own, others = "/api/v1/namespaces/{namespace}", "/api/v1/namespaces/kube-system"
    for collection in (f"{own}/secrets", f"{others}/configmaps", f"{others}/pods", ACCOUNTS, f"{RBAC}/roles"):
        with pytest.raises(ApiError, match="forbidden") as caught:
            runs.find(collection)
        assert caught.value.status == 403


def test_it_can_touch_no_settings_of_the_deployment(runs: Cluster, cluster: Cluster) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marin-cluster"}, "data": {"cluster.yaml": "x"}}
    cluster.create(CONFIG_MAPS, settings)
    with pytest.raises(ApiError, match="forbidden"):
        runs.delete(CONFIG_MAPS, "marin-cluster")
    # An admission policy limits patches to job files. This release has no such policy: tests/deploy/test_admission.py.
