"""One pod of the test kubelet: a single container that runs once, as a process in an overlay of this machine's root."""

import base64
import datetime
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from resources.cluster import CONFIG_MAPS, EVENTS, PODS, Cluster, Object

if TYPE_CHECKING:
    from kubelet import Kubelet

SECRETS = "/api/v1/namespaces/{namespace}/secrets"
_KINDS = {CONFIG_MAPS: "configmap", SECRETS: "secret"}
FIELDS = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}


@dataclass(frozen=True)
class Image:
    """The meaning of an image name on this machine: a working folder and an environment."""

    workdir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """`{address}` in a value is replaced by the pod's address."""


class PodProcess:
    """Runs a pod and reports its state."""

    def __init__(self, kubelet: "Kubelet", raw: Object, address: str):
        self.kubelet, self.raw, self.address = kubelet, raw, address
        self.name, self.namespace = raw["metadata"]["name"], raw["metadata"]["namespace"]
        self.node = raw["spec"]["nodeName"]
        self.job = raw["metadata"].get("labels", {}).get("marin.community/job", "")
        self.folder = kubelet.folder / raw["metadata"]["uid"]
        self.container: Object = raw["spec"]["containers"][0]
        self.process: subprocess.Popen[bytes] | None = None
        self.terminating = False
        self.lived: list[float] = []
        """When its process began, and when its end was noticed, by the monotonic clock."""

        self.started = _now()
        self.lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Return its host name, and its name in a headless service."""
        host, subdomain = self.raw["spec"].get("hostname", self.name), self.raw["spec"].get("subdomain")
        return [host] + ([f"{host}.{subdomain}"] if subdomain else [])

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def run(self) -> None:
        """Start the container when its volumes exist, copy its output, report its end."""
        if self.container["image"] not in self.kubelet.images:
            self._report(
                "Pending", waiting={"reason": "ErrImagePull", "message": f"image {self.container['image']} is not here"}
            )
            return
        self._report("Pending", waiting={"reason": "ContainerCreating"})
        mounts = self._mounts()
        with self.lock:
            if mounts is None or self.terminating:
                return
            self.process = subprocess.Popen(
                self._command(mounts), env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self.lived.append(time.monotonic())
        started = _now()
        self._report("Running", running={"startedAt": started})
        assert self.process.stdout is not None
        with self.process.stdout, (self.folder / "log").open("ab", buffering=0) as out:
            for line in self.process.stdout:
                moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                out.write(f"{moment} ".encode() + line.rstrip(b"\n") + b"\n")
        code = self.process.wait()
        self.lived.append(time.monotonic())
        if not self.terminating:
            code = 128 - code if code < 0 else code
            self._report("Succeeded" if code == 0 else "Failed", terminated=_terminated(code, started))

    def terminate(self, grace_seconds: float, node_goes: bool) -> None:
        """Send SIGTERM, wait for the grace period, send SIGKILL; then delete the pod, or mark it as lost with its node."""
        with self.lock:
            self.terminating = True
        if self.is_running() and self.process is not None:
            os.kill(self.process.pid, signal.SIGTERM)
            end = time.monotonic() + grace_seconds
            while self.is_running() and time.monotonic() < end:
                time.sleep(0.05)
        self.kill()
        code = 0 if self.process is None else self.process.wait()
        ended = _terminated(128 - code if code < 0 else code, self.started)
        if node_goes:
            message = "Pod was terminated in response to imminent node shutdown."
            disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
            self._report("Failed", terminated=ended, extra={"reason": "Terminated", "message": message}, condition=disrupted)
        else:
            self._report("Failed", terminated=ended)
            self.kubelet.insist(lambda: self._here().delete(PODS, self.name, self.raw["metadata"]["uid"], grace_seconds=0))

    def kill(self) -> None:
        """Send SIGKILL to every process of the container."""
        if self.is_running() and self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def log_lines(self, since: str, tail: int) -> list[bytes] | None:
        path = self.folder / "log"
        if not path.exists():
            return None
        lines = path.read_bytes().splitlines(keepends=True)
        lines = [line for line in lines if line[:19].decode() >= since[:19]]
        return lines[-tail:] if tail else lines

    def _report(
        self, phase: str, *, extra: Mapping[str, str] | None = None, condition: Object | None = None, **state: Object
    ) -> None:
        status: dict[str, Any] = {"phase": phase, "startTime": self.started, "hostIP": "127.0.0.1", "podIP": self.address}
        status["containerStatuses"] = [
            {
                "name": self.container["name"], "image": self.container["image"], "imageID": "", "restartCount": 0,
                "ready": "running" in state, "started": "running" in state, "state": state,
            }
        ]  # fmt: skip
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "lastTransitionTime": _now()}
        status["conditions"] = [ready] + ([condition] if condition else [])
        self.kubelet.patch_status(self.namespace, self.name, status | dict(extra or {}))

    def _mounts(self) -> list[tuple[Path, str]] | None:
        """Return the folders on this machine and their places in the container; None if the pod is deleted before its ConfigMap
        exists.
        """
        volumes = {volume["name"]: volume for volume in self.raw["spec"].get("volumes", [])}
        (self.folder / "volumes").mkdir(parents=True)
        mounts = []
        for mount in self.container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            source = self.folder / "volumes" / mount["name"]
            if "hostPath" in volume:
                source = Path(volume["hostPath"]["path"])
            else:
                source.mkdir()
            given = volume.get("configMap", {}).get("name"), volume.get("secret", {}).get("secretName")
            if given != (None, None):
                data = self._values(CONFIG_MAPS, given[0]) if given[0] else self._values(SECRETS, given[1])
                if data is None:
                    return None
                for name, value in data.items():
                    (source / name).write_bytes(value)
            mounts.append((source / mount.get("subPath", ""), mount["mountPath"]))
        return mounts

    def _values(self, collection: str, name: str) -> dict[str, bytes] | None:
        """Wait for the values of a ConfigMap or a Secret, as a kubelet does; None if the pod is deleted before."""
        is_reported = False
        while not (self.terminating or self.kubelet.stopping.is_set()):
            resource = self.kubelet.insist(lambda: self._here().get(collection, name))
            if resource is None and not is_reported:
                is_reported = True
                self._warn("FailedMount", f'MountVolume.SetUp failed : {_KINDS[collection]} "{name}" not found')
            if resource is not None:
                data = resource.get("data", {})
                return {k: base64.b64decode(v) if collection == SECRETS else v.encode() for k, v in data.items()}
            time.sleep(0.1)
        return None

    def _warn(self, reason: str, message: str) -> None:
        """Write an event of this pod, as a kubelet does."""
        metadata = self.raw["metadata"]
        pod_ref = {"kind": "Pod", "name": metadata["name"], "namespace": self.namespace, "uid": metadata["uid"]}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": self.namespace},
            "involvedObject": pod_ref,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.kubelet.insist(lambda: self._here().create(EVENTS, event))

    def _here(self) -> Cluster:
        return replace(self.kubelet.cluster, namespace=self.namespace)

    def _environment(self) -> dict[str, str]:
        image = self.kubelet.images[self.container["image"]]
        image_env = {name: value.replace("{address}", self.address) for name, value in image.env.items()}
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "HOSTNAME": self.names[0], **image_env}
        server = urlsplit(self.kubelet.cluster.server)
        env |= {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
        for entry in self.container.get("envFrom", []):
            config_map, secret = entry.get("configMapRef", {}).get("name"), entry.get("secretRef", {}).get("name")
            values = self._values(CONFIG_MAPS, config_map) if config_map else self._values(SECRETS, secret)
            env |= {key: value.decode() for key, value in (values or {}).items()}
        for entry in self.container.get("env", []):
            path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            env[entry["name"]] = entry.get("value", "") if path is None else self._field(path)
        return env

    def _field(self, path: str) -> str:
        match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if match:
            return self.raw["metadata"].get(match[1], {}).get(match[2], "")
        section, name = FIELDS[path]
        return self.raw[section][name]

    def _command(self, mounts: list[tuple[Path, str]]) -> list[str]:
        """Return the container's command in an overlay root with its volumes bound. It needs root, as a kubelet does.

        Of this machine's temporary files the container sees only the image's folder: pods share only a volume or a bucket.
        """
        root = self.folder / "root"
        for part in ("upper", "work", "merged", "tmp"):
            (root / part).mkdir(parents=True)
        merged = root / "merged"
        workdir = shlex.quote(str(self.kubelet.images[self.container["image"]].workdir))
        lines = [f"mount -t overlay overlay -o lowerdir=/,upperdir={root}/upper,workdir={root}/work {merged}"]
        lines += [f"mount --rbind /{name} {merged}/{name}" for name in ("proc", "sys", "dev")]
        lines.append(f"mount --bind {self.kubelet.hosts} {merged}/etc/hosts && hostname {shlex.quote(self.names[0])}")
        lines.append(f"mount --bind {root}/tmp {merged}/tmp && mkdir -p {merged}{workdir}")
        lines.append(f"mount --bind {workdir} {merged}{workdir} && mount -o remount,ro,bind {merged}{workdir}")
        for source, named in mounts:
            target = re.sub("^/var/run/", "/run/", named)  # a link that would lead out of the container's root
            inside, above = shlex.quote(f"{merged}{target}"), shlex.quote(f"{merged}{Path(target).parent}")
            make = f"mkdir -p {above} && touch {inside}" if source.is_file() else f"mkdir -p {inside}"
            lines.append(f"{make} && mount --bind {shlex.quote(str(source))} {inside}")
        lines.append(f'exec chroot {merged} sh -c \'cd {workdir} && exec "$@"\' sh "$@"')
        wrapped = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-ec", "\n".join(lines), "sh"]
        return [*wrapped, *self.container.get("command", []), *self.container.get("args", [])]


def _terminated(code: int, started: str) -> Object:
    reason = "Completed" if code == 0 else "Error"
    return {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": _now()}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
