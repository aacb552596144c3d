"""Helpers of launcher tests: a configurable job, a launcher with a shared folder, and waiting."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kubelet import NODES, Kubelet

from lineage.jobs.job import LaunchRequest
from resources.cluster import Cluster
from resources.cluster_settings import ClusterSettings, Mount
from resources.failures import RetryPolicy
from resources.kubernetes_launcher import KubernetesLauncher

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "marin:test"
WAIT_SECONDS = 900.0
"""Timeout against endless waits on a loaded machine; it measures nothing."""
QUICK = RetryPolicy(first_wait_seconds=0.1, max_wait_seconds=0.2)


def launch_of(folder: Path, **record: object) -> LaunchRequest:
    (folder / "job.json").write_text(json.dumps(record))
    return LaunchRequest("quick_job", folder / "job.json", folder / "log.txt", "runs/a/checkpoint[b]", "0123456789abcdef")


def launcher_of(cluster: Cluster, folder: Path, **options: object) -> KubernetesLauncher:
    mounts = (Mount(str(folder), host_path=str(folder)),)
    settings = ClusterSettings(IMAGE, cluster.namespace, mounts=mounts)
    patient = replace(cluster, patience_seconds=WAIT_SECONDS)
    return KubernetesLauncher(patient, settings, policy=QUICK, poll_seconds=0.1, **options)  # type: ignore[arg-type]


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.05)


@contextmanager
def cordoned(kubelet: Kubelet) -> Iterator[None]:
    """Put pods on nodes that the block adds, and on no other; the end of the block removes these nodes.

    A node that a test leaves behind takes pods of the next test: "one of two runners survived the reclaim" (2026-11-22).
    """
    before = list(kubelet.nodes)
    for name in before:
        kubelet.cluster.merge(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for name in [name for name in kubelet.nodes if name not in before]:
            kubelet.reclaim_node(name, grace_seconds=0)
        for name in before:
            kubelet.cluster.merge(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
