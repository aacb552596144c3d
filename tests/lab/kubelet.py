"""A kubelet for tests: registers nodes with a real API server and runs the pods bound to them as processes of this machine.

Containers see an overlay of this machine's root, with volumes mounted as their manifests say; other files that they write are
lost with them. It supports what launchers observe: phases, exit codes, logs through the API server, SIGTERM, grace period and
SIGKILL, reclaimed nodes, one address for each pod (of 127.0.0.0/8, so ports do not collide) and its names in a headless
service. It has only the images that a test declares, and no probes, memory limits or network of its own.
"""

import datetime
import http.server
import itertools
import json
import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import requests
from pod_process import Image, PodProcess

from resources.cluster import ApiError, Cluster, Object

NODES = "/api/v1/nodes"
ALL_PODS = "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
WATCH_SECONDS = 20
AWAY_SECONDS = 0.3
HOSTS_BYTES = 1 << 16
NODE_FACTS = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
    "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    """Nodes of one test session. Use it as a context. `pods` has the live pods by uid, `history` every pod that existed."""

    def __init__(self, cluster: Cluster, images: Mapping[str, Image]):
        self.cluster = cluster
        self.images = images
        self.nodes: dict[str, dict[str, str]] = {}
        self.pods: dict[str, PodProcess] = {}
        self.history: list[PodProcess] = []
        self.stopping = threading.Event()
        self.scratch = tempfile.TemporaryDirectory(prefix="marin-kubelet-")
        self.folder = Path(self.scratch.name)
        self.hosts = self.folder / "hosts"
        self.numbers = itertools.count()
        self._write_hosts()

    def __enter__(self) -> "Kubelet":
        self.server = _log_server(self)
        for work in (self.server.serve_forever, self._heartbeats, self._watch):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        for pod in list(self.pods.values()):
            pod.kill()
        self.server.shutdown()
        self.server.server_close()
        self.scratch.cleanup()

    def add_node(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
        taints: tuple[str, ...] = (),
    ) -> None:
        capacity = {"cpu": "400", "memory": "2000Gi", "ephemeral-storage": "20000Gi", "pods": "500", **(resources or {})}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        keys = [{"key": key, "value": "present", "effect": "NoSchedule"} for key in taints]
        self.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": keys}})
        self.nodes[name] = capacity
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.server.server_port}},
            "nodeInfo": dict.fromkeys(NODE_FACTS, "test"),
            "conditions": [ready | times],
        }
        self.cluster.merge(f"{NODES}/{name}/status", {"status": status})

    def reclaim_node(self, name: str, grace_seconds: float) -> None:
        """Reclaim a node as a spot node: SIGTERM, SIGKILL after the grace period, unfinished pods marked as disrupted, the node
        deleted.
        """
        here = [pod for pod in list(self.pods.values()) if pod.node == name and not pod.has_ended()]
        threads = [threading.Thread(target=pod.terminate, args=(grace_seconds, True)) for pod in here]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.nodes.pop(name)
        self.insist(lambda: self.cluster.delete(NODES, name))

    def running(self, name: str) -> list[PodProcess]:
        """Return the pods of a job that have a live process."""
        return [pod for pod in list(self.pods.values()) if pod.job == name and pod.is_running()]

    def patch_status(self, namespace: str, pod: str, status: Mapping[str, Any]) -> None:
        """Report a pod's state to the API server, unless the pod is deleted."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
        try:
            self.insist(lambda: self.cluster.merge(path, {"status": dict(status)}))
        except ApiError as error:
            if error.status != 404:
                raise

    def insist[T](self, ask: Callable[[], T]) -> T | None:
        """Call the API server until it answers, because it may be away for a while. None if the kubelet stops meanwhile."""
        while not self.stopping.is_set():
            try:
                return ask()
            except ApiError as error:
                if error.status != 409 and error.status < 500:
                    raise
            except requests.RequestException:
                pass  # the server is away
            self.stopping.wait(AWAY_SECONDS)
        return None

    def _write_hosts(self) -> None:
        """Write the names of all pods, in place and at a fixed length: pods see the file through a mount, never half of it."""
        rows = ["127.0.0.1 localhost", *(f"{pod.address} {' '.join(pod.names)}" for pod in list(self.pods.values()))]
        with self.hosts.open("r+b" if self.hosts.exists() else "wb") as file:
            os.pwrite(file.fileno(), "\n".join(rows).encode().ljust(HOSTS_BYTES, b"\n"), 0)

    def _add(self, raw: Object) -> PodProcess:
        number = next(self.numbers)
        address = f"127.{64 + os.getpid() % 64}.{number // 250 % 250}.{number % 250 + 1}"
        pod = self.pods[raw["metadata"]["uid"]] = PodProcess(self, raw, address)
        self.history.append(pod)
        self._write_hosts()
        return pod

    def _watch(self) -> None:
        while not self.stopping.is_set():
            try:
                for event in self.cluster.watch(ALL_PODS, WATCH_SECONDS):
                    if self.stopping.is_set():
                        return
                    if (
                        event["type"] in ("ADDED", "MODIFIED", "DELETED")
                        and event["object"]["spec"].get("nodeName") in self.nodes
                    ):
                        self._on_pod(event["type"], event["object"])
            except (requests.RequestException, ApiError, json.JSONDecodeError):  # away, or cut in the middle of an event
                self.stopping.wait(AWAY_SECONDS)

    def _on_pod(self, kind: str, raw: Object) -> None:
        uid = raw["metadata"]["uid"]
        pod = self.pods.get(uid)
        if kind == "DELETED":
            if pod is not None:
                pod.kill()
                del self.pods[uid]
                self._write_hosts()
        elif "deletionTimestamp" in raw["metadata"]:
            pod = pod or self._add(raw)
            if not pod.terminating:
                grace = raw["metadata"].get("deletionGracePeriodSeconds", 30)
                threading.Thread(target=pod.terminate, args=(grace, False), daemon=True).start()
        elif pod is None and raw["status"].get("phase", "Pending") == "Pending":
            threading.Thread(target=self._add(raw).run, daemon=True).start()

    def _heartbeats(self) -> None:
        """Renew leases: a node with an old lease counts as lost, and its pods with it."""
        while not self.stopping.wait(4):
            for name in list(self.nodes):
                renewed = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
                try:
                    self._renew(name, spec)
                except (requests.RequestException, ApiError):
                    continue  # the server is away; the next beat tries again

    def _renew(self, name: str, spec: Object) -> None:
        try:
            self.cluster.merge(f"{LEASES}/{name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            self.cluster.create(LEASES, lease)


def _log_server(kubelet: Kubelet) -> http.server.ThreadingHTTPServer:
    """Serve what the API server requests for `kubectl logs`: /containerLogs/NAMESPACE/POD/CONTAINER over TLS."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Log no requests on stderr."""

        def do_GET(self) -> None:
            url = urlparse(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            _, namespace, name, _ = (*url.path.strip("/").split("/"), "", "", "")[:4]
            pod = next((p for p in list(kubelet.pods.values()) if (p.namespace, p.name) == (namespace, name)), None)
            lines = None if pod is None else pod.log_lines(query.get("sinceTime", ""), int(query.get("tailLines", 0)))
            if lines is not None and query.get("timestamps") not in ("true", "1"):
                lines = [line.partition(b" ")[2] for line in lines]
            body = b"container is not available" if lines is None else b"".join(lines)
            self.send_response(404 if lines is None else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    certificate, key = kubelet.folder / "kubelet.crt", kubelet.folder / "kubelet.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
