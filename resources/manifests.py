"""Kubernetes manifests of jobs as plain dictionaries: functions of the launch, the hardware and the cluster's settings.

One host is a `Job`; several (a TPU slice of many hosts, several slices, several GPU nodes) are a `JobSet`. In both, Kubernetes
replaces a preempted pod, which spends no retries; any other failure ends the attempt, and `resources/failures.py` decides
whether there is another. Facts and sources: docs/design/launchers.md.
"""

import re
from collections.abc import Mapping
from typing import Any

from lineage.jobs.job import LaunchRequest
from recipes.hardware import Hardware
from resources.cluster_settings import ClusterSettings
from resources.pods import CONTAINER, Manifest, gang_environment, pod_annotations, pod_spec, tracks

LABEL = "marin.community"
DIGEST, NAME, CODE, IMAGE, HARDWARE, ATTEMPT, HISTORY, JUDGED, VERDICT = (
    f"{LABEL}/{word}" for word in ("digest", "artifact", "code", "image", "hardware", "attempt", "history", "judged", "verdict")
)
"""Annotations: the purpose of an object, and its history so far."""
SHARDS = f"{LABEL}/shards"
"""Label of pods that do shards of data stages: they may reach the internet (deploy/kubernetes/network.yaml)."""
TRACKERS = f"{LABEL}/trackers"
"""Label of pods that report to trackers: they may reach the internet, too."""
SAVED_AND_LEFT = 143
"""Exit code of a process that SIGTERM ended: peers on healthy nodes exit with it when one host is preempted."""
NAME_LENGTH = 44
"""Longest name of a job: a pod of a JobSet adds up to 18 characters (`-host-63-511-abcde`), and its name may have 63."""
DIGEST_LENGTH = 8


def object_name(launch: LaunchRequest) -> str:
    """Return the job's name: readable words, then eight characters of the identity, so that one identity is one job."""
    words = re.sub(r"[^a-z0-9]+", "-", launch.name.lower()).strip("-")
    if not words[:1].isalpha():  # JobSet makes a Service of the same name, which must begin with a letter
        words = f"job-{words}".strip("-")
    return f"{words[: NAME_LENGTH - DIGEST_LENGTH - 1].strip('-')}-{launch.digest[:DIGEST_LENGTH].lower()}"


def job_file_name(launch: LaunchRequest, attempt: int) -> str:
    """Return the name of one attempt's ConfigMap. The one before may still wait for garbage collection, so names differ."""
    return f"{object_name(launch)}-{attempt}"


def pod_labels(launch: LaunchRequest, attempt: int) -> dict[str, str]:
    """Return the labels of one attempt's pods; pods of the attempt before may still exist."""
    return {f"{LABEL}/job": object_name(launch), ATTEMPT: str(attempt)}


def wanted(launch: LaunchRequest, settings: ClusterSettings) -> dict[str, str]:
    """Return the purpose of a launch: an existing job of the same name must have the same."""
    return {DIGEST: launch.digest, CODE: launch.code, IMAGE: settings.image}


def job_manifest(launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int, history: str) -> Manifest:
    """Return a Job of one pod. `history` is the JSON of the failed attempts before."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(launch, shape, settings, attempt, history),
        "spec": {
            **_job_spec(launch, shape, settings, attempt, hosts=1, environment={}),
            "ttlSecondsAfterFinished": settings.keep_finished_seconds,
        },
    }


def indexed_job_manifest(
    launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int, history: str
) -> Manifest:
    """Return a Job with one independent pod for each index: a failed pod does not affect the others."""
    job = job_manifest(launch, shape, settings, attempt, history)
    spec = job["spec"]
    del spec["backoffLimit"]  # limit of all pods together; not used if each index has its own
    spec |= {
        "completionMode": "Indexed",
        "completions": launch.indices,
        "parallelism": launch.indices,
        "backoffLimitPerIndex": 0,
    }
    spec["template"]["metadata"]["labels"] |= {SHARDS: "yes"}
    # Kueue may admit fewer pods at once than there are indices: else a queue of 4 machines would never admit 8 runners.
    job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1"
    return job


def jobset_manifest(launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int, history: str) -> Manifest:
    """Return a JobSet: TPU slices are its replicas with a pod for each host; GPU nodes are the pods of one replica."""
    name = object_name(launch)
    replicas, hosts = (shape.slices, shape.hosts) if shape.kind == "tpu" else (1, shape.pods)
    metadata = _metadata(launch, shape, settings, attempt, history)
    if shape.kind == "tpu":
        metadata["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
    spec = _job_spec(launch, shape, settings, attempt, hosts, gang_environment(name, shape))
    spec["completionMode"] = "Indexed"
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "ttlSecondsAfterFinished": settings.keep_finished_seconds,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {
                "maxRestarts": 0,  # the launcher retries our own failures
                "rules": [
                    {
                        "name": "disrupted",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [{"name": "host", "replicas": replicas, "template": {"spec": spec}}],
        },
    }


def job_file(launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int) -> Manifest:
    """Return the job file of one attempt as a ConfigMap. It is created before the job, so it has no owner yet (`owned_by`).

    Its annotations say what the job will be: of two launches at once, the second makes the job that the first one described.
    Raises: ValueError above Kubernetes' limit of 1 MiB.
    """
    text = launch.job_path.read_text()
    if len(text.encode()) > 1_000_000:
        raise ValueError(
            f"{launch.name}: its job file {launch.job_path} has {len(text.encode())} bytes; a ConfigMap holds at most "
            "1,000,000. Give the job fewer inputs: a mixture of fewer components, for example"
        )
    metadata = {
        "name": job_file_name(launch, attempt),
        "labels": {f"{LABEL}/job": object_name(launch)},
        "annotations": wanted(launch, settings) | {HARDWARE: shape.name},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata, "data": {"job.json": text}}


def owned_by(owner: Manifest) -> Manifest:
    """Return the metadata by which an object is deleted with its owner."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {"ownerReferences": [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]}


def _metadata(launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int, history: str) -> Manifest:
    labels = {f"{LABEL}/job": object_name(launch), "app.kubernetes.io/managed-by": "marin"}
    if shape.name in settings.queues:
        labels["kueue.x-k8s.io/queue-name"] = settings.queues[shape.name]
    if settings.priority in settings.priorities:
        labels["kueue.x-k8s.io/priority-class"] = settings.priorities[settings.priority]
    annotations = wanted(launch, settings) | {
        NAME: launch.name,
        HARDWARE: shape.name,
        ATTEMPT: str(attempt),
        HISTORY: history,
    }
    return {"name": object_name(launch), "namespace": settings.namespace, "labels": labels, "annotations": annotations}


def _job_spec(
    launch: LaunchRequest, shape: Hardware, settings: ClusterSettings, attempt: int, hosts: int, environment: Mapping[str, Any]
) -> Manifest:
    """`hosts` pods at once, none of which may fail; a disruption is not a failure."""
    # A single preempted pod is replaced within its Job. A gang restarts as a whole, so its Job fails for that reason.
    disrupted = "Ignore" if hosts * shape.slices == 1 else "FailJob"
    rules: list[Manifest] = [{"action": disrupted, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    if disrupted == "FailJob":
        exit_codes = {"containerName": CONTAINER, "operator": "In", "values": [SAVED_AND_LEFT]}
        rules.append({"action": "FailJob", "onExitCodes": exit_codes})
    return {
        "parallelism": hosts,
        "completions": hosts,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": rules},
        "template": {
            "metadata": {
                "labels": pod_labels(launch, attempt) | ({TRACKERS: "yes"} if tracks(launch) else {}),
                "annotations": pod_annotations(shape, settings),
            },
            "spec": pod_spec(launch, shape, settings, job_file_name(launch, attempt), environment),
        },
    }
