"""Probes of a cluster: does the API server answer, and would it create a job?"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from lineage.jobs.job import LaunchRequest
from recipes.hardware import alternatives
from resources.cluster import JOBS, Cluster
from resources.cluster_settings import ClusterSettings
from resources.job_account import to_json
from resources.kubernetes_launcher import KubernetesLauncher
from resources.manifests import job_manifest

PROBED_HARDWARE = ("cpu",)


def launcher_probes(launcher: KubernetesLauncher) -> Mapping[str, Callable[[], None]]:
    """Return the probes of the cluster that a launcher uses, by name. Unlike the launcher they do not wait for a server."""
    cluster = replace(launcher.cluster, patience_seconds=0.0)
    return {
        "api_server": lambda: _version(cluster),
        "job_submit": lambda: submit_probe(cluster, launcher.settings),
    }


def submit_probe(cluster: Cluster, settings: ClusterSettings) -> None:
    """Ask the server to create a job without keeping it: schema, rights, quota and admission policies are checked.

    Nothing is scheduled and no node is held, so it does not show that a pod starts. Raises: ApiError with the server's reason.
    """
    nowhere = Path(tempfile.gettempdir()) / "probe.json"  # the job's file is not sent in a dry run
    launch = LaunchRequest("trainer", nowhere, nowhere, "probe", digest="0" * 64)
    shape = settings.choose(alternatives(PROBED_HARDWARE))
    cluster.would_create(JOBS, job_manifest(launch, shape, settings, 1, to_json(())))


def _version(cluster: Cluster) -> None:
    cluster.server_version()
