"""The lab's places: the canonical store, the ferries' TTL'd store, and how jobs are launched."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import yaml

from lineage.artifact.store import Store
from lineage.build.fan_out import FanOut
from lineage.build.nodes import Node
from lineage.build.plan import Built, build
from lineage.config import from_jsonable
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import Launcher, Listener
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.shards.run import ShardLimits
from lineage.shards.worker_pool import WorkerPool
from lineage.tables.ray_tasks import RayEngine
from recipes.hardware import refuse_accelerators
from resources.cluster import connect
from resources.cluster_settings import ClusterSettings
from resources.kubernetes_launcher import KubernetesLauncher
from resources.stores import DEFAULT_ROOT, lab_stores

PRIORITY_TAG = "marin/priority"
"""Tag of a run: `production`, `interactive` or `batch`, the priority of jobs that it launches on a cluster."""


@dataclass(frozen=True)
class Lab:
    """The plain object that assets receive. `ferry_store` holds only artifacts that may be deleted after `FERRY_TTL_DAYS`."""

    store: Store
    ferry_store: Store
    execution: Execution
    """How stages run in the process that orchestrates; the worker pool in it serves both stores."""
    launcher: Launcher
    fan_out: FanOut | None = None
    """Runs shards of data stages on other machines; None: in the step."""
    trials: Launcher | None = None
    """Takes the trials of all Dagster runs of this process, one after another; None: each Dagster run has its own."""

    @staticmethod
    def at(
        root: str,
        *,
        execution: Execution = ONE_WORKER,
        launcher: Launcher = run_subprocess,
        fan_out: FanOut | None = None,
        scratch: str = "",
    ) -> "Lab":
        """Return a lab under a root folder or URL; relative folders are relative to the repository's root.

        `scratch` is a local folder for downloads and working copies. Default: on the file system of a local root, or below the
        system's temporary folder for a URL. If `execution` has a pool, the caller ends it.
        """
        kept, expiring = lab_stores(root, scratch)
        return Lab(kept, expiring, execution, launcher, fan_out)

    def build(self, store: Store, node: Node, *, listener: Listener | None = None, run_id: str = "") -> Built:
        """`lineage.build.plan.build` with this lab's execution, launcher and runners."""
        return build(
            store,
            node,
            execution=self.execution,
            launcher=self.launcher,
            fan_out=self.fan_out,
            listener=listener,
            run_id=run_id,
        )


class LabResource(dg.ConfigurableResource[Lab]):
    """The lab's storage root (a folder or any fsspec URL) and how its stages and jobs run."""

    root: str = DEFAULT_ROOT
    workers: int = 2
    scratch: str = ""
    """Local folder for downloads and working copies; see `Lab.at`."""

    shard_memory_mib: int = 0
    """Data that one shard worker may hold; 0: no limit."""

    cluster: str = ""
    """File of cluster settings (docs/deploy.md): jobs run on that cluster. Empty: they are child processes of the step."""

    data_runners: int = 0
    """Number of runners for the shards of data stages, launched like jobs; 0: the step runs them itself."""

    data_hardware: str = "cpu"
    """Hardware of each runner: one machine of `recipes/hardware.py`."""

    ray: str = ""
    """Address of a Ray cluster for the shuffles of data stages (`lineage.tables.ray_tasks`); empty: this machine's workers."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Lab]:
        """Yield the lab with one worker pool for everything that this process does in a run: one step, or all steps in one
        process.

        The workers end with the run, whether it succeeds, fails or is cancelled, or with the process if it is killed. No worker
        is started before there is work, so a sensor has none.
        """
        priority = context.run.tags.get(PRIORITY_TAG, "") if context.run is not None else ""
        with WorkerPool() as pool:
            yield self.lab(is_cancelled=lambda: _is_cancelled(context), priority=priority, pool=pool)

    def lab(self, is_cancelled: Callable[[], bool] = lambda: False, priority: str = "", pool: WorkerPool | None = None) -> Lab:
        """Return the lab. `is_cancelled` says, when a launcher is interrupted, whether a user cancelled.

        `priority` is that of its jobs on a cluster; default: the cluster's own. Without a `pool` each artifact starts its own
        workers.
        """
        launcher = launcher_of(self.cluster, is_cancelled, priority) if self.cluster else run_subprocess
        limits = ShardLimits(memory_bytes=self.shard_memory_mib << 20 or None)
        fan_out = None
        if self.data_runners:
            refuse_accelerators((self.data_hardware,), "the lab's data_hardware", "Shards of data stages need none of them.")
            fan_out = FanOut(launcher, self.data_runners, (self.data_hardware,))
        return Lab.at(
            self.root,
            execution=Execution(self.workers, limits, pool, RayEngine(self.ray) if self.ray else None),
            launcher=launcher,
            fan_out=fan_out,
            scratch=self.scratch,
        )


def launcher_of(settings_file: str, is_cancelled: Callable[[], bool], priority: str = "") -> KubernetesLauncher:
    """Return the launcher of the cluster that a file describes. Raises: ValueError naming a wrong field."""
    settings_fields = yaml.safe_load(Path(settings_file).read_text())
    settings = from_jsonable(ClusterSettings, settings_fields | ({"priority": priority} if priority else {}), settings_file)
    cluster = connect(settings.kubeconfig, settings.namespace, settings.patience_seconds, settings.context)
    return KubernetesLauncher(cluster, settings, settings.retries, is_cancelled=is_cancelled)


def _is_cancelled(context: dg.InitResourceContext) -> bool:
    """Whether a user cancelled the run of this step; a run that dies with its machine is not cancelled."""
    if context.instance is None or context.run is None:
        return False
    run = context.instance.get_run_by_id(context.run.run_id)
    return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


def lab_from_environment(workers: int = 2) -> LabResource:
    """Return the lab of the environment variables `MARIN_ROOT`, `MARIN_WORKERS`, `MARIN_SCRATCH`, `MARIN_SHARD_MEMORY_MIB`,
    `MARIN_CLUSTER`, `MARIN_DATA_RUNNERS` and `MARIN_RAY`.

    Defaults: `.marin` in the repository, `workers`, jobs as child processes, shards of data stages in the step.
    Raises: ValueError naming a variable that is not a number.
    """
    return LabResource(
        root=os.environ.get("MARIN_ROOT", DEFAULT_ROOT),
        workers=_number("MARIN_WORKERS", workers, least=1),
        scratch=os.environ.get("MARIN_SCRATCH", ""),
        shard_memory_mib=_number("MARIN_SHARD_MEMORY_MIB", 0, least=0),
        cluster=os.environ.get("MARIN_CLUSTER", ""),
        data_runners=_number("MARIN_DATA_RUNNERS", 0, least=0),
        ray=os.environ.get("MARIN_RAY", ""),
    )


def _number(variable: str, default: int, *, least: int) -> int:
    """Return the whole number of an environment variable. Raises: ValueError naming the variable."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{variable} is {text!r}; give a whole number, at least {least}")
    return int(text)
