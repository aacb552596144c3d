"""Settings of a cluster: the fields of the file that MARIN_CLUSTER names (docs/deploy.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import reduce
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
class PodOptions:
    """What pods on some hardware are given beside what the table says (`recipes/hardware.py`)."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Environment, such as LIBTPU_INIT_ARGS or XLA_FLAGS of one generation."""

    capabilities: tuple[str, ...] = ()
    """Capabilities of the container, such as IPC_LOCK for InfiniBand. They are effective for root only: see `user`."""

    user: int | None = None
    """User id; default: the image's. 0 where device files belong to root."""

    tolerations: tuple[Mapping[str, str], ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""

    def over(self, other: "PodOptions") -> "PodOptions":
        """Return both; where both say something, this one holds. Capabilities and tolerations add up."""
        return PodOptions(
            env={**other.env, **self.env},
            capabilities=tuple(dict.fromkeys((*other.capabilities, *self.capabilities))),
            user=other.user if self.user is None else self.user,
            tolerations=(*other.tolerations, *self.tolerations),
            node_selector={**other.node_selector, **self.node_selector},
            annotations={**other.annotations, **self.annotations},
            runtime_class=self.runtime_class or other.runtime_class,
        )


@dataclass(frozen=True)
class ClusterSettings:
    """What differs between clusters. Nothing here is part of an identity."""

    image: str
    namespace: str = "default"
    kubeconfig: str = ""
    """Path of a kubeconfig; empty: `$KUBECONFIG`, or the account of the pod that this process runs in."""

    context: str = ""
    """Context of the kubeconfig; empty: its current one."""

    service_account: str = "marin-job"
    python: str = "python"
    queues: Mapping[str, str] = field(default_factory=dict)
    """Hardware name -> Kueue's local queue; empty: no queues, and every hardware may be requested."""

    priorities: Mapping[str, str] = field(default_factory=dict)
    """`production`, `interactive`, `batch` -> name of the cluster's WorkloadPriorityClass."""

    priority_classes: Mapping[str, str] = field(default_factory=dict)
    """`production`, `interactive`, `batch` -> name of the cluster's PriorityClass of pods."""

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

    tracker_secrets: tuple[str, ...] = ()
    """The same, of jobs that report to trackers only: evaluations run programs that a model wrote, and get no key."""

    image_pull_secrets: tuple[str, ...] = ()
    pods: Mapping[str, PodOptions] = field(default_factory=dict)
    """Pattern of hardware names (`*`, `v5p-*`, `*h100x8`) -> options of their pods. Later patterns go before earlier ones."""

    tcpxo_image: str = ""
    """Image of GPUDirect-TCPXO's daemon, for several nodes of a3mega (`resources/tcpxo.py`)."""

    retries: RetryPolicy = field(default_factory=RetryPolicy)
    start_seconds: float = 1800.0
    """Seconds that a pod may hold its node before its container runs: its image is pulled and its volumes are mounted."""

    machine_seconds: float = 259_200.0
    """Seconds that a job may wait for quota or for a node; 0: without end. It holds nothing meanwhile."""

    patience_seconds: float = 900.0
    """Seconds that the API server may be unreachable before a step fails; its job continues meanwhile."""

    def __post_init__(self) -> None:
        if not self.image:
            raise ValueError("cluster settings: image is empty; name the image of this repository's commit, by digest")
        odd = [name for name in (*self.priorities, *self.priority_classes, self.priority) if name not in PRIORITIES]
        if odd:
            raise ValueError(f"cluster settings: priorities name {odd}; known: {', '.join(PRIORITIES)}")

    def pod_options(self, hardware: str) -> PodOptions:
        """Return the options of pods on the hardware of a name."""
        matching_options = [options for pattern, options in self.pods.items() if fnmatchcase(hardware, pattern)]
        return reduce(lambda earlier, later: later.over(earlier), matching_options, PodOptions())

    def choose(self, shapes: tuple[Hardware, ...]) -> Hardware:
        """Return the first alternative that this cluster has a queue for. Raises: ValueError listing the queues."""
        for shape in shapes:
            if not self.queues or shape.name in self.queues:
                return shape
        raise ValueError(
            f"none of {', '.join(shape.name for shape in shapes)} has a queue on this cluster; "
            f"queues: {', '.join(sorted(self.queues))}"
        )
