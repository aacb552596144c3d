"""The lab's places: the canonical store, the ferries' TTL'd store, and how jobs are launched."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import yaml

from lineage.child_processes import run_subprocess
from lineage.config import from_jsonable
from lineage.crew import Crew
from lineage.fan_out import FanOut
from lineage.jobs import Launcher
from lineage.shards import DEFAULT_LIMITS, ShardLimits
from lineage.store import Store
from recipes.hardware import refuse_accelerators
from resources.cluster import connect
from resources.cluster_settings import ClusterSettings
from resources.kubernetes_launcher import KubernetesLauncher

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_ROOT = ".marin"
FERRY_TTL_DAYS = 7
PRIORITY_TAG = "marin/priority"
"""Of a run: `production`, `interactive` or `batch`, for the jobs that it launches on a cluster."""


@dataclass(frozen=True)
class Lab:
    """Plain object that assets receive. `ferry_store` holds only what may be deleted after `FERRY_TTL_DAYS`."""

    store: Store
    ferry_store: Store
    launcher: Launcher
    fan_out: FanOut | None = None
    """Where shards of data stages go, when not into the step."""

    @staticmethod
    def at(
        root: str,
        *,
        workers: int,
        launcher: Launcher = run_subprocess,
        fan_out: FanOut | None = None,
        scratch: str = "",
        limits: ShardLimits = DEFAULT_LIMITS,
        crew: Crew | None = None,
    ) -> "Lab":
        """A lab under a root folder or URL; relative folders are taken from the repository's root.

        `scratch` is a local folder for downloads and working copies: by default one on the file system of a local root, one
        below the system's temporary folder for a URL. The `crew` works for both stores; who gives it ends it.
        """
        base = root
        if "://" not in root:
            base = str((REPOSITORY / root).resolve())
            scratch = scratch or f"{base}/work"
        folder = scratch or None  # one for both stores, so nothing is downloaded twice
        kept, expiring = (
            Store(f"{base}/{name}", workers, folder, limits, crew) for name in ("artifacts", f"ttl-{FERRY_TTL_DAYS}d")
        )
        return Lab(kept, expiring, launcher, fan_out)


class LabResource(dg.ConfigurableResource[Lab]):
    """Root of the lab's storage (a folder or any fsspec URL) and processes used inside one stage."""

    root: str = DEFAULT_ROOT
    workers: int = 2
    scratch: str = ""
    """Local folder for downloads and working copies; see `Lab.at`."""

    shard_memory_mib: int = 0
    """Data that one shard worker may hold; 0: what the machine has."""

    cluster: str = ""
    """File of cluster settings (docs/deploy.md): jobs run there. Empty: they are child processes of the step."""

    data_runners: int = 0
    """Jobs of so many runners do the shards of data stages, where the launcher runs jobs; 0: the step does them itself."""

    data_hardware: str = "cpu"
    """What each of them runs on: one machine of `recipes/hardware.py`."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Lab]:
        """The lab with workers for all that this process does for a run: its one step, or every step of a run in one process.

        They end with it, whether it succeeds, fails or is cancelled; those of a process that is killed end as it does. No
        worker is started before there is work, so a sensor has none.
        """
        priority = context.run.tags.get(PRIORITY_TAG, "") if context.run is not None else ""
        with Crew() as crew:
            yield self.lab(is_cancelled=lambda: _is_cancelled(context), priority=priority, crew=crew)

    def lab(self, is_cancelled: Callable[[], bool] = lambda: False, priority: str = "", crew: Crew | None = None) -> Lab:
        """The lab itself; `is_cancelled` tells a launcher that is interrupted whether a user did it.

        `priority` of its jobs on a cluster; the cluster's own unless told. Without a `crew` each artifact has its own workers.
        """
        launcher = launcher_of(self.cluster, is_cancelled, priority) if self.cluster else run_subprocess
        limits = ShardLimits(memory_bytes=self.shard_memory_mib << 20 or None)
        fan_out = None
        if self.data_runners:
            refuse_accelerators((self.data_hardware,), "the lab's data_hardware", "Shards of data stages need none of them.")
            fan_out = FanOut(launcher, self.data_runners, (self.data_hardware,))
        return Lab.at(
            self.root,
            workers=self.workers,
            launcher=launcher,
            fan_out=fan_out,
            scratch=self.scratch,
            limits=limits,
            crew=crew,
        )


def launcher_of(settings_file: str, is_cancelled: Callable[[], bool], priority: str = "") -> KubernetesLauncher:
    """The launcher of the cluster that a file describes. Raises: ValueError naming the field that is wrong."""
    told = yaml.safe_load(Path(settings_file).read_text())
    settings = from_jsonable(ClusterSettings, told | ({"priority": priority} if priority else {}), settings_file)
    cluster = connect(settings.kubeconfig, settings.namespace, settings.patience_seconds)
    return KubernetesLauncher(cluster, settings, settings.retries, is_cancelled=is_cancelled)


def _is_cancelled(context: dg.InitResourceContext) -> bool:
    """Whether the interruption of this step is a user's: a run that dies with its machine is not being cancelled."""
    if context.instance is None or context.run is None:
        return False
    run = context.instance.get_run_by_id(context.run.run_id)
    return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


def lab_from_environment() -> LabResource:
    """The lab that `MARIN_ROOT`, `MARIN_WORKERS`, `MARIN_SCRATCH`, `MARIN_SHARD_MEMORY_MIB`, `MARIN_CLUSTER` and
    `MARIN_DATA_RUNNERS` name.

    Otherwise `.marin` in the repository, two workers, jobs as child processes, and shards of data stages in the step.
    """
    return LabResource(
        root=os.environ.get("MARIN_ROOT", DEFAULT_ROOT),
        workers=int(os.environ.get("MARIN_WORKERS", "2")),
        scratch=os.environ.get("MARIN_SCRATCH", ""),
        shard_memory_mib=int(os.environ.get("MARIN_SHARD_MEMORY_MIB", "0")),
        cluster=os.environ.get("MARIN_CLUSTER", ""),
        data_runners=int(os.environ.get("MARIN_DATA_RUNNERS", "0")),
    )
