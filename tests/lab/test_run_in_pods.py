"""A small run and its evaluation in pods that are killed: bytes equal to child processes'."""

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from kubelet import Kubelet
from launches import WAIT_SECONDS, cordoned, launcher_of, until
from small_runs import small_run

from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first, exists
from lineage.build.plan import build, build_all
from recipes.records.run import Run
from recipes.runs import checkpoint, eval_result, eval_tasks
from resources.cluster import JOBS, Cluster
from resources.cluster_settings import Mount
from resources.failures import PREEMPTION
from resources.manifests import ATTEMPT

pytestmark = pytest.mark.cluster
SAVED = (200, 400, 600)
"""Saves are so far apart that a pod that is hit after one has not reached the next: 60 steps are a second here."""
GRACE_SECONDS = 15.0
"""What GKE's spot nodes leave to a pod ."""


def run() -> Run:
    small = small_run("pods")
    return replace(small, spec=replace(small.spec, num_steps=SAVED[-1], save_every_steps=SAVED[0]))


def evaluation() -> Node:
    return eval_result(run(), SAVED[-1], eval_tasks(run())[:1], partition="heldout")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """Yield two stores with the same data. In the first, child processes made the run and its evaluation, undisturbed."""
    folder = tmp_path_factory.mktemp("world")
    plain = Store(str(folder / "plain"), str(folder / "work"))
    build_all(plain, checkpoint(run(), SAVED[-1]).parents())
    for node in ancestors_first([evaluation()]):
        if node.stage.job is None:
            build(plain, node)
    shutil.copytree(folder / "plain", folder / "pods")
    build(plain, checkpoint(run(), SAVED[-1]))
    build(plain, evaluation())
    yield plain, Store(str(folder / "pods"), str(folder / "work"))


def test_a_run_in_pods_that_are_killed_ends_with_the_same_checkpoint(
    world: tuple[Store, Store], cluster: Cluster, kubelet: Kubelet, tmp_path: Path
) -> None:
    """One pod is killed after the first checkpoint, the next loses its node after the second; the third is left alone."""
    plain, store = world
    first, second, last = (checkpoint(run(), step) for step in SAVED)
    launcher = launcher_of(cluster, Path(store.root).parent)
    compiled = {name: os.environ[name] for name in os.environ if name.startswith("JAX_")}  # compiled by the undisturbed run
    cache = os.environ["JAX_COMPILATION_CACHE_DIR"]
    mounts = (*launcher.settings.mounts, Mount(cache, host_path=cache))
    launcher = replace(launcher, settings=replace(launcher.settings, env=compiled, mounts=mounts))
    name = "runs-pods-checkpoint-step-00000600"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(build, store, last, launcher=launcher)
        until(lambda: exists(store, first), "the first checkpoint")
        job = cluster.find(JOBS)[0]["metadata"]["name"]
        assert job.startswith(name)
        kubelet.running(job)[0].kill()
        with cordoned(kubelet):
            kubelet.add_node("spot-training")
            until(lambda: exists(store, second), "the second checkpoint")
            kubelet.reclaim_node("spot-training", grace_seconds=GRACE_SECONDS)
        built = running.result(2 * WAIT_SECONDS)
    assert built.launched is not None
    ends = [attempt.ended.partition(" ")[0] for attempt in built.launched.attempts]
    assert ends == ["killed", PREEMPTION, "done"]
    assert cluster.find(JOBS)[0]["metadata"]["annotations"][ATTEMPT] == "3"
    log = (store.scratch / "jobs" / built.artifact.spec.version / "log.txt").read_text()
    left = re.search(r"pods: asked to leave; checkpoint saved at step (\d+)", log)
    assert left is not None, "the pod on the node that is taken saves and says so"
    resumed = [int(step) for step in re.findall(r"resuming pods at step (\d+) from", log)]
    assert resumed == [SAVED[0], int(left[1])], "a killed one goes on from the last checkpoint, a warned one loses nothing"
    undisturbed = build(plain, last)
    assert undisturbed.reused and not built.reused
    assert built.artifact.data_version == undisturbed.artifact.data_version
    scores = build(store, evaluation(), launcher=launcher)
    assert not scores.reused
    assert scores.artifact.data_version == build(plain, evaluation()).artifact.data_version
