"""The victims of chaos: each function takes the world, kills with SIGKILL, and returns what it hit."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos_location import TRAIN
from chaos_world import add_node
from dagster_processes import DagsterProcesses
from pod_process import PodProcess
from whole_lab import WholeLab

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from recipes.records.run import Run

GRACE_SECONDS = 15.0
AWAY = (0.5, 4.0)
"""Least and greatest seconds for which a server is away before it is started again."""


@dataclass
class World:
    """The lab, its Dagster, the run, and what the script has observed."""

    lab: WholeLab
    dagster: DagsterProcesses
    run: Run
    store: Store
    spec: ArtifactSpec
    """Of the last checkpoint."""
    rng: random.Random
    launches: int = 0
    jobsets: dict[str, int] = field(default_factory=dict)
    """Attempt of every job that existed, by uid."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Failed looks of the script, by message."""
    done: threading.Event = field(default_factory=threading.Event)

    def pods(self) -> list[PodProcess]:
        return [pod for pod in list(self.lab.kubelet.pods.values()) if pod.is_running()]

    def is_finished(self) -> bool:
        return self.store.find(self.spec) is not None

    def active_runs(self) -> int:
        active = "('NOT_STARTED', 'QUEUED', 'STARTING', 'STARTED', 'CANCELING')"
        return self.lab.postgres.rows(f"select count(*) from runs where pipeline_name = '{TRAIN}' and status in {active}")[0][0]


def kill_pod(world: World) -> str:
    pods = world.pods()
    if not pods:
        return "no host was left to hit"
    pod = world.rng.choice(pods)
    pod.kill()
    return f"{pod.name}"


def kill_gang(world: World) -> str:
    pods = world.pods()
    for pod in pods:
        pod.kill()
    return f"{len(pods)} hosts"


def reclaim_node(world: World) -> str:
    """Reclaim a node as a spot node is reclaimed: a warning, a grace period, and another node."""
    pods = world.pods()
    if not pods:
        return "no host was left to hit"
    node = world.rng.choice(pods).node
    world.lab.kubelet.reclaim_node(node, GRACE_SECONDS)
    add_node(world.lab.kubelet, f"{node.partition('.')[0]}.{time.monotonic_ns()}")
    return node


def kill_step(world: World) -> str:
    return f"{world.dagster.kill_runs()} processes of runs"


def kill_daemon(world: World) -> str:
    return _away(world, world.dagster.kill_daemon, world.dagster.start_daemon)


def kill_api_server(world: World) -> str:
    return _away(world, world.lab.plane.kill_api_server, world.lab.plane.start_api_server)


def kill_bucket(world: World) -> str:
    return _away(world, world.lab.bucket.kill, world.lab.bucket.start)


def _away(world: World, kill: Callable[[], None], start: Callable[[], None]) -> str:
    seconds = world.rng.uniform(*AWAY)
    kill()
    time.sleep(seconds)
    start()
    return f"away for {seconds:.1f} s"


VICTIMS: dict[str, Callable[[World], str]] = {
    "pod": kill_pod,
    "gang": kill_gang,
    "node": reclaim_node,
    "step": kill_step,
    "daemon": kill_daemon,
    "API server": kill_api_server,
    "object store": kill_bucket,
}


def is_there(world: World, victim: str) -> bool:
    """Return whether a victim exists: hosts, or the step that watches them. Servers always exist."""
    if victim in ("pod", "gang", "node"):
        return bool(world.pods())
    return victim != "step" or bool(world.dagster.runs())
