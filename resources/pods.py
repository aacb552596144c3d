"""The pod of a job: one container with the lab's image, what its hardware needs, and what the cluster's operator adds."""

from collections.abc import Mapping
from typing import Any

from lineage.jobs.child_processes import HUGE_PAGES
from lineage.jobs.job import LaunchRequest
from lineage.messages import ASKED
from recipes.hardware import Hardware
from resources.cluster_settings import ClusterSettings, PodOptions
from resources.tcpxo import TCPXO_ENVIRONMENT, add_tcpxo, tcpxo_annotations

CONTAINER = "job"
JOB_FILE = "/etc/marin/job.json"
SCRATCH, DISK = "/scratch", "ephemeral-storage"
"""The folder of a pod's downloads and working copies (`MARIN_SCRATCH` of the image), and its size among a shape's resources."""
USER = 10001
"""User of the image (deploy/Dockerfile)."""
COORDINATOR_PORT = 8476
SPOT = "cloud.google.com/gke-spot"
FABRICS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "infiniband": {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "ibp"},
    "tcpxo": TCPXO_ENVIRONMENT,
}
"""Environment of GPU gangs by the network between their nodes. InfiniBand: CoreWeave's documentation."""

type Manifest = dict[str, Any]


def pod_annotations(shape: Hardware, settings: ClusterSettings) -> dict[str, str]:
    """Return a pod's annotations: no eviction by the autoscaler, network fabric, and those of the settings."""
    fabric = tcpxo_annotations() if shape.fabric == "tcpxo" and shape.pods > 1 else {}
    eviction = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    return {**eviction, **fabric, **settings.pod_options(shape.name).annotations}


def pod_spec(
    launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, job_file: str, environment: Mapping[str, Any]
) -> Manifest:
    """Return the pod. `job_file` is its ConfigMap; `environment` is what a gang needs, values or sources (`gang_environment`).

    The operator's environment goes before ours, and that of one hardware before that of all.
    """
    options = settings.pod_options(shape.name)
    mounts, volumes = _volumes(shape, settings, job_file)
    # Huge pages make training on CPU faster (lineage/jobs/child_processes.py).
    defaults = {**ASKED, **(HUGE_PAGES if shape.kind == "cpu" else {}), **environment}
    env = {**defaults, **settings.env, **options.env}
    secrets = [{"secretRef": {"name": name}} for name in settings.secrets]
    if tracks(launch):  # optional, because a tracker may need no key
        secrets += [{"secretRef": {"name": name, "optional": True}} for name in settings.tracker_secrets]
    capabilities = {"drop": ["ALL"], **({"add": list(options.capabilities)} if options.capabilities else {})}
    container = {
        "name": CONTAINER,
        "image": settings.image,
        "command": [settings.python, "-m", launch.module, *launch.arguments_on(shape.name), JOB_FILE],
        "env": [_variable(name, value) for name, value in sorted(env.items())],
        "envFrom": secrets,
        "resources": {"requests": dict(shape.resources), "limits": dict(shape.resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    selector, tolerations = _placement(shape, settings, options)
    user = USER if options.user is None else options.user
    pod = {
        "restartPolicy": "Never",  # podFailurePolicy needs it, and a restart in place would hide an attempt
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": user != 0,
            "runAsUser": user,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": settings.grace_seconds,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [container],
        "volumes": volumes,
    }
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.priority in settings.priority_classes:
        pod["priorityClassName"] = settings.priority_classes[settings.priority]
    if options.runtime_class:
        pod["runtimeClassName"] = options.runtime_class
    if settings.host_network and shape.pods > 1:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if shape.fabric == "tcpxo" and shape.pods > 1:
        add_tcpxo(pod, container, settings.tcpxo_image)
    return pod


def tracks(launch: LaunchRequest) -> bool:
    """Whether a job reports to trackers: only then does it get their keys and a way out of the cluster."""
    return any(argument.startswith("MARIN_TRACKERS=") for argument in launch.arguments)


def gang_environment(name: str, shape: Hardware) -> Mapping[str, Any]:
    """Return what `trainer/processes.py` reads. On TPU slices the rest is GKE's to set: TPU_WORKER_*, MEGASCALE_*."""
    if shape.kind == "tpu":
        return {"MARIN_PROCESSES": "gke-tpu"}
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    return {
        **FABRICS[shape.fabric],
        "MARIN_PROCESSES": str(shape.pods),
        "MARIN_PROCESS_INDEX": index,
        "MARIN_COORDINATOR": f"{name}-host-0-0.{name}:{COORDINATOR_PORT}",
    }


def _variable(name: str, value: str | Mapping[str, Any]) -> Manifest:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": dict(value)}


def _placement(shape: Hardware, settings: ClusterSettings, options: PodOptions) -> tuple[dict[str, str], list[Manifest]]:
    """Return the node selector and the tolerations."""
    tolerations: list[Manifest] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in shape.taints]
    selector = dict(shape.node_selector)
    if settings.spot and any(key.startswith("cloud.google.com/") for key in selector):  # an accelerator of GKE
        selector[SPOT] = "true"
        tolerations.append({"key": SPOT, "operator": "Exists", "effect": "NoSchedule"})
    return selector | dict(options.node_selector), [*tolerations, *map(dict, options.tolerations)]


def _volumes(shape: Hardware, settings: ClusterSettings, job_file: str) -> tuple[list[Manifest], list[Manifest]]:
    """Return the container's mounts and the pod's volumes."""
    mounts: list[Manifest] = [{"name": "job", "mountPath": JOB_FILE.rpartition("/")[0], "readOnly": True}]
    mounts += [mount.place(f"mount-{index}") for index, mount in enumerate(settings.mounts)]
    volumes: list[Manifest] = [{"name": "job", "configMap": {"name": job_file}}]
    volumes += [{"name": f"mount-{index}", **mount.source()} for index, mount in enumerate(settings.mounts)]
    if shape.kind == "gpu":
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "100Gi"}})
    if SCRATCH not in {mount.path for mount in settings.mounts}:  # else the container's root, which has no limit
        mounts.append({"name": "scratch", "mountPath": SCRATCH})
        volumes.append({"name": "scratch", "emptyDir": {"sizeLimit": shape.resources[DISK]}})
    return mounts, volumes
