"""A whole cluster on this machine: API server and nodes, a bucket, PostgreSQL, and the deployment's own files upon them.

    with WholeLab(folder) as lab:
        subprocess.run([...], env=lab.environment())      # a process of the lab: its jobs run there

`deploy/kubernetes/accounts.yaml` is applied, and what launches jobs has the rights of `marin-runs` and no more. The instance is
`deploy/dagster.yaml` but for what only the image has: runs are child processes, their logs lie in a folder.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from control_plane import KUBECONFIG, ControlPlane, binaries
from gcs_process import BucketProcess
from indexed_jobs import IndexedJobs
from jobset_controller import JobSetController
from kubelet import Kubelet
from launches import IMAGE, ROOT
from pod_process import Image
from postgres import Postgres, postgres

from resources.cluster import Cluster

NAMESPACE = "marin"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/marin"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/marin/serviceaccounts",
    "Role": f"{RBAC}/roles",
    "RoleBinding": f"{RBAC}/rolebindings",
}
TOKEN_SECONDS = 36_000


class WholeLab:
    """All parts of a deployment, with files below `folder`; `env` and `settings` go into the file that MARIN_CLUSTER names.

    With `data_runners`, shards of data stages go to Indexed Jobs of so many pods, through a front that this release needs.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str] | None = None,
        images: Mapping[str, Image] | None = None,
        data_runners: int = 0,
        **settings: object,
    ):
        self.folder, self.env, self.images, self.settings = folder, env or {}, images or {}, settings
        self.data_runners = data_runners
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> "WholeLab":
        with contextlib.ExitStack() as stack:
            self.bucket = stack.enter_context(BucketProcess(self.folder / "objects"))
            self.root = self.bucket.bucket("marin-artifacts")
            self.postgres: Postgres = stack.enter_context(postgres())
            self.plane = stack.enter_context(ControlPlane(binaries()))
            self.admin: Cluster = self.plane.cluster(NAMESPACE)
            stack.callback(self.admin.close)
            self.kubelet = stack.enter_context(Kubelet(self.plane.cluster("default"), {IMAGE: self._image(), **self.images}))
            self.controller = stack.enter_context(JobSetController(self.plane.cluster("default")))
            self.url = self.plane.url
            if self.data_runners:
                self.url = stack.enter_context(IndexedJobs(self.plane.cluster("default"))).front(self.admin).server
            self._apply_accounts()
            self.kubeconfig = self.kubeconfig_of("marin-runs")
            self._write_files()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def environment(self) -> dict[str, str]:
        """Return the environment of a process of the deployment, by `deploy/kubernetes/environment.yaml`."""
        variables = {
            "DAGSTER_HOME": str(self.folder / "home"),
            "PYTHONPATH": ":".join(str(ROOT / part) for part in (".", "tests/lab", "tests/shell")),
            "STORAGE_EMULATOR_HOST": self.bucket.url, "MARIN_ROOT": self.root, "MARIN_SCRATCH": str(self.folder / "scratch"),
            "MARIN_CLUSTER": str(self.folder / "cluster.yaml"), "MARIN_PG_HOST": self.postgres.host,
            "MARIN_PG_PORT": str(self.postgres.port), "MARIN_PG_USER": self.postgres.user, "MARIN_PG_PASSWORD": "trusted",
            "MARIN_PG_DATABASE": self.postgres.database, "MARIN_DATA_RUNNERS": str(self.data_runners), "MARIN_AUTOMATION": "on",
        }  # fmt: skip
        return {**os.environ, **variables}

    def run(self, *command: str) -> None:
        """Run a process of the deployment to its end. Raises: CalledProcessError."""
        subprocess.run([sys.executable, *command], cwd=ROOT, env=self.environment(), check=True)

    def _image(self) -> Image:
        """Return an image in which coordinators listen at their pod's address, not on every interface of this machine."""
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
        return Image(ROOT, {"PYTHONPATH": str(ROOT), "PATH": path, "JAX_COORDINATOR_BIND_ADDRESS": "{address}:8476"})

    def _apply_accounts(self) -> None:
        text = (ROOT / "deploy" / "kubernetes" / "accounts.yaml").read_text()
        for record in yaml.safe_load_all(text):
            self.admin.create(COLLECTIONS[record["kind"]], record)

    def kubeconfig_of(self, account: str) -> Path:
        """Write a file that gives a process the rights of an account of the deployment."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        made = self.admin.create(f"{COLLECTIONS['ServiceAccount']}/{account}/token", request)
        path = self.folder / f"{account}.kubeconfig"
        path.write_text(KUBECONFIG.format(url=self.url, ca=self.plane.ca, token=made["status"]["token"]))
        return path

    def _write_files(self) -> None:
        env = {"STORAGE_EMULATOR_HOST": self.bucket.url, **self.env}
        given = {"image": IMAGE, "namespace": NAMESPACE, "kubeconfig": str(self.kubeconfig), "env": env, **self.settings}
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(given))
        home = self.folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(yaml.safe_dump(instance_of(home)))


def instance_of(home: Path) -> dict[str, Any]:
    """Return the production instance without what needs the image: dagster-gcp's logs, dagster-k8s's launcher of runs."""
    instance = yaml.safe_load((ROOT / "deploy" / "dagster.yaml").read_text())
    instance["compute_logs"] = {
        "module": "dagster._core.storage.local_compute_log_manager",
        "class": "LocalComputeLogManager",
        "config": {"base_dir": str(home / "logs")},
    }
    del instance["run_launcher"]
    instance["run_monitoring"] |= {"poll_interval_seconds": 5, "start_timeout_seconds": 60}
    return instance
