"""Settings of a cluster: the fields of the file that MARIN_CLUSTER names (docs/deploy.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recipes.hardware import Hardware
from resources.failures import RetryPolicy

type Priority = Literal["production", "interactive", "batch"]
PRIORITIES: tuple[Priority, ...] = ("production", "interactive", "batch")


@dataclass(frozen=True)
class Mount:
    """A volume of every job's pod: a path in the pod, and a folder of its node, a claim or a secret of the namespace."""

    path: str
    host_path: str = ""
    claim: str = ""
    secret: str = ""
    """Name of a Secret whose keys become files: credentials for a bucket from a cloud without Workload Identity."""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.host_path, self.claim, self.secret))) != 1:
            given = f"host_path is {self.host_path!r}, claim is {self.claim!r} and secret is {self.secret!r}"
            raise ValueError(f"mount {self.path}: {given}; give exactly one of the three")

    def source(self) -> dict[str, Any]:
        """Return the volume's source as Kubernetes writes it."""
        if self.secret:
            return {"secret": {"secretName": self.secret, "defaultMode": 0o440}}
        if self.claim:
            return {"persistentVolumeClaim": {"claimName": self.claim}}
        return {"hostPath": {"path": self.host_path}}

    def place(self, volume: str) -> dict[str, Any]:
        """Return the mount of the container; a secret is read-only."""
        return {"name": volume, "mountPath": self.path, **({"readOnly": True} if self.secret else {})}


@dataclass(frozen=True)
class ClusterSettings:
    """What differs between clusters. Nothing here is part of an identity."""

    image: str
    namespace: str = "default"
    kubeconfig: str = ""
    """Path of a kubeconfig; empty: `$KUBECONFIG`, or the account of the pod that this process runs in."""

    service_account: str = "marin-job"
    python: str = "python"
    queues: Mapping[str, str] = field(default_factory=dict)
    """Hardware name -> Kueue's local queue; empty: no queues, and every hardware may be requested."""

    priorities: Mapping[str, str] = field(default_factory=dict)
    """`production`, `interactive`, `batch` -> name of the cluster's WorkloadPriorityClass."""

    priority: Priority = "batch"
    spot: bool = False
    host_network: bool = False
    """Gangs use their hosts' network, as xpk does for TPU slices. Pod Security's baseline profile refuses that."""

    grace_seconds: int = 25
    keep_finished_seconds: int = 86_400
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    """Names of Secrets whose keys become environment variables."""

    retries: RetryPolicy = field(default_factory=RetryPolicy)
    patience_seconds: float = 900.0
    """Seconds that the API server may be unreachable before a step gives up; its job continues meanwhile."""

    def __post_init__(self) -> None:
        if not self.image:
            raise ValueError("cluster settings: image is empty; name the image of this repository's commit, by digest")
        odd = [name for name in (*self.priorities, self.priority) if name not in PRIORITIES]
        if odd:
            raise ValueError(f"cluster settings: priorities name {odd}; known: {', '.join(PRIORITIES)}")

    def choose(self, shapes: tuple[Hardware, ...]) -> Hardware:
        """Return the first alternative that this cluster has a queue for. Raises: ValueError listing the queues."""
        for shape in shapes:
            if not self.queues or shape.name in self.queues:
                return shape
        raise ValueError(
            f"none of {', '.join(shape.name for shape in shapes)} has a queue on this cluster; "
            f"queues: {', '.join(sorted(self.queues))}"
        )
