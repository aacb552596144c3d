"""A real Kubernetes control plane on loopback: etcd, API server, controllers and scheduler, without a container runtime.

    with control_plane() as plane:
        plane.cluster("default").find(PODS)

Taken is what is at hand first: one that runs (`MARIN_KUBECONFIG`, with rights to everything and no node of its own), binaries
(`MARIN_KUBE`, `KUBEBUILDER_ASSETS`), else those that `tests/lab/build_kube.sh` has built. Of ours access is by a token in group
system:masters, so RBAC stays on for everyone else.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import requests

from resources.cluster import Cluster, from_kubeconfig

READY_SECONDS = 180.0
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
TTL_GATE = "--feature-gates=TTLAfterFinished=true"
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: lab
clusters: [{{name: lab, cluster: {{server: "{url}", certificate-authority: "{ca}"}}}}]
users: [{{name: lab, user: {{token: "{token}"}}}}]
contexts: [{{name: lab, context: {{cluster: lab, user: lab}}}}]
"""


def binaries(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the first folder that has all binaries. Raises: FileNotFoundError naming what each folder lacks, and the build
    command.

    The assets of envtest have only an API server and etcd. They schedule nothing and run no job, so they are skipped.
    """
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [Path(environment[name]) for name in ("MARIN_KUBE", "KUBEBUILDER_ASSETS") if environment.get(name)]
    lacking = []
    for folder in (*folders, cache / "marin" / "kube-1.20.2"):
        missing = [name for name in BINARIES if not (folder / name).exists()]
        if not missing:
            return folder
        lacking.append(f"{folder} has no {', '.join(missing)}")
    raise FileNotFoundError(f"{'; '.join(lacking)}; `make cluster-test` builds them, or: bash tests/lab/build_kube.sh")


def control_plane(environment: Mapping[str, str] = os.environ) -> "ControlPlane | RunningPlane":
    """Return the first available control plane. Raises: FileNotFoundError, as `binaries`."""
    running = environment.get("MARIN_KUBECONFIG", "")
    return RunningPlane(Path(running)) if running else ControlPlane(binaries(environment))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RunningPlane:
    """A running control plane that tests fill with nodes, namespaces and jobs: never give one that has real work."""

    def __init__(self, kubeconfig: Path):
        self.kubeconfig = kubeconfig

    def __enter__(self) -> "RunningPlane":
        nodes = [node["metadata"]["name"] for node in self.cluster("default").find("/api/v1/nodes")]
        if nodes:
            raise ValueError(
                f"MARIN_KUBECONFIG={self.kubeconfig} has nodes ({', '.join(nodes[:5])}); tests register their own and must not "
                "meet others: name a control plane without nodes, or unset it"
            )
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave it running."""

    def cluster(self, namespace: str) -> Cluster:
        return from_kubeconfig(self.kubeconfig, namespace)


class ControlPlane:
    """The processes of a cluster. Every listener is on 127.0.0.1, and all state is in one folder on a memory file system."""

    def __init__(self, folder: Path):
        self.binaries = folder
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="marin-kube-", dir=memory if memory.is_dir() else None))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.token = secrets.token_hex(16)
        self.etcd = f"http://127.0.0.1:{free_port()}"
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.minor = 0
        self.ca = self.folder / "certs" / "apiserver.crt"
        self.kubeconfig = self.folder / "kubeconfig"

    def __enter__(self) -> "ControlPlane":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def cluster(self, namespace: str) -> Cluster:
        return from_kubeconfig(self.kubeconfig, namespace)

    def kill_api_server(self) -> None:
        """Kill the API server with SIGKILL; its state is in etcd."""
        process = self.processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def start_api_server(self) -> None:
        self._spawn(
            "kube-apiserver", "--etcd-servers", self.etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}", "--cert-dir", self.folder / "certs", "--token-auth-file", self.folder / "tokens.csv",
            "--authorization-mode=RBAC", "--service-account-key-file", self.folder / "sa.key",
            "--service-account-signing-key-file", self.folder / "sa.key",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none",  # the server may refuse loopback as an endpoint
            "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true", *self._before(21, TTL_GATE),
        )  # fmt: skip
        self._wait_for("kube-apiserver", lambda: self.ca.exists() and self._get("/readyz").text == "ok")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes.values()):
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        version = subprocess.run([self.binaries / "kube-apiserver", "--version"], check=True, capture_output=True, text=True)
        self.minor = int(version.stdout.split(".")[1])  # "Kubernetes v1.20.2"
        peer = f"http://127.0.0.1:{free_port()}"
        self._spawn(
            "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--log-level", "error",
        )  # fmt: skip
        self._wait_for("etcd", lambda: requests.get(f"{self.etcd}/health", timeout=1).ok)
        (self.folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        key = ["openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048"]
        subprocess.run(key, check=True, capture_output=True)
        self.start_api_server()
        self.kubeconfig.write_text(KUBECONFIG.format(url=self.url, ca=self.ca, token=self.token))
        common = (
            "--kubeconfig",
            self.kubeconfig,
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            *self._before(24, "--port=0"),
        )
        self._spawn(
            "kube-controller-manager", *common, f"--secure-port={free_port()}", "--cert-dir", self.folder / "manager-certs",
            "--service-account-private-key-file", self.folder / "sa.key", "--root-ca-file", self.ca,
            *self._before(21, TTL_GATE), *self._before(27, "--pod-eviction-timeout=10s"), "--node-monitor-grace-period=20s",
            "--concurrent-serviceaccount-token-syncs=2", "--controllers=*,-nodeipam,-route,-service,-cloud-node-lifecycle",
        )  # fmt: skip
        scheduler = ("--cert-dir", self.folder / "scheduler-certs", f"--secure-port={free_port()}")
        self._spawn("kube-scheduler", *common, *scheduler)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait_for("controllers", lambda: self._get(account).ok)

    def _before(self, minor: int, flag: str) -> tuple[str, ...]:
        """Return a flag that releases from 1.MINOR on do not need, or do not know."""
        return (flag,) if self.minor < minor else ()

    def _spawn(self, name: str, *arguments: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.binaries / name), *map(str, arguments)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _get(self, path: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        with requests.Session() as session:
            session.trust_env = False
            return session.get(self.url + path, headers=headers, verify=str(self.ca), timeout=5)

    def _wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for a condition. Raises: RuntimeError with the end of the log of a dead process; TimeoutError."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    tail = (self.folder / f"{name}.log").read_text()[-2000:]
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{tail}")
            try:
                if ready():
                    return
            except requests.RequestException:
                pass  # not listening yet
            time.sleep(0.1)
        raise TimeoutError(f"{what} is not ready after {READY_SECONDS:.0f} s; logs in {self.folder}")
