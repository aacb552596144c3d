"""Jobs of several hosts as JobSets: all start together, all restart together, a lost host costs no progress."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_world import add_node
from jobset_controller import JobSetController
from kubelet import Kubelet
from launches import WAIT_SECONDS, launch_of, launcher_of, until

from lineage.jobs.job import LaunchRequest
from resources.cluster import JOBS, JOBSETS, Cluster
from resources.kubernetes_launcher import JobFailedError
from resources.manifests import ATTEMPT, object_name

pytestmark = pytest.mark.cluster
RANK = {"print": "rank $MARIN_PROCESS_INDEX of $MARIN_PROCESSES at $MARIN_COORDINATOR"}


@pytest.fixture(scope="module")
def gang_kubelet(kubelet: Kubelet, jobsets: JobSetController) -> Iterator[Kubelet]:
    """Yield two nodes of eight GPUs, and the controller of JobSets."""
    for number in range(2):
        add_node(kubelet, f"gpu-{number}")
    yield kubelet
    for node in [node for node in kubelet.nodes if node.startswith("gpu-")]:
        kubelet.reclaim_node(node, grace_seconds=0)


def gang_of(folder: Path, **record: object) -> LaunchRequest:
    return replace(launch_of(folder, **record), hardware=("2xh100x8",))


def ranks(launch: LaunchRequest) -> list[str]:
    """Return the output of the processes, without the names of their pods."""
    if not launch.log_path.exists():
        return []
    return sorted(line.partition("] ")[2] or line for line in launch.log_path.read_text().splitlines())


def test_a_gang_starts_whole_and_a_host_that_is_taken_costs_nothing(
    cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path
) -> None:
    launch = gang_of(tmp_path, steps=[RANK, {"wait_for": str(tmp_path / "go")}])
    name = object_name(launch)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: len(ranks(launch)) == 2, "both hosts run")
        assert ranks(launch) == [f"rank {rank} of 2 at {name}-host-0-0.{name}:8476" for rank in range(2)]
        taken = gang_kubelet.running(name)[0].node
        gang_kubelet.reclaim_node(taken, grace_seconds=5)
        add_node(gang_kubelet, f"{taken}-again")
        until(lambda: len(ranks(launch)) == 4, "both hosts run again")
        (tmp_path / "go").touch()
        launched = running.result(WAIT_SECONDS)
    ends = sorted(attempt.ended.partition(" (")[0] for attempt in launched.attempts)
    assert ends == ["done", "done", "preemption", "stopped with its gang"]
    jobset = cluster.get(JOBSETS, name)
    assert jobset is not None
    assert (jobset["status"]["restarts"], jobset["status"]["restartsCountTowardsMax"]) == (1, 0)
    assert jobset["metadata"]["annotations"][ATTEMPT] == "1", "the launcher tried once"


def test_a_gang_of_which_one_host_has_no_node_waits_and_spends_no_retry(
    cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path
) -> None:
    """If nothing admits gangs as a whole, the first host gives its node back again and again; this is not a crash loop."""
    launch = gang_of(tmp_path, steps=[{"join": True}, RANK])
    launcher = launcher_of(cluster, tmp_path)
    env = {"MARIN_GATHER_SECONDS": "5", "JAX_PLATFORMS": "cpu"}
    launcher = replace(launcher, settings=replace(launcher.settings, env=env))
    missing = next(name for name in gang_kubelet.nodes if name.startswith("gpu-"))
    gang_kubelet.reclaim_node(missing, grace_seconds=0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher, launch)
        until(lambda: _attempt(cluster, launch) > 3, "three attempts have waited in vain")
        add_node(gang_kubelet, f"{missing}-again")
        launched = running.result(WAIT_SECONDS)
    ends = [attempt.ended.partition(" (")[0] for attempt in launched.attempts]
    assert ends[-2:] == ["done", "done"] and set(ends[:-2]) == {"peers never came"} and len(ends) >= 5


def _attempt(cluster: Cluster, launch: LaunchRequest) -> int:
    jobset = cluster.get(JOBSETS, object_name(launch))
    return 0 if jobset is None else int(jobset["metadata"]["annotations"][ATTEMPT])


def test_a_killed_host_ends_the_attempt_and_the_launcher_starts_the_next(
    cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path
) -> None:
    launch = gang_of(tmp_path, steps=[RANK, {"wait_for": str(tmp_path / "go")}])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: len(ranks(launch)) == 2, "both hosts run")
        gang_kubelet.running(object_name(launch))[0].kill()
        until(lambda: len(ranks(launch)) == 4, "both hosts run again")
        (tmp_path / "go").touch()
        launched = running.result(WAIT_SECONDS)
    assert launched.attempts[0].ended.startswith("killed (transient)")
    assert [(attempt.number, attempt.ended) for attempt in launched.attempts[1:]] == [(2, "done"), (2, "done")]


def test_a_gang_whose_recipe_says_one_host_now_is_followed_as_the_gang_that_it_is(
    cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    launch = gang_of(tmp_path, steps=[RANK, {"wait_for": str(tmp_path / "go")}])
    smaller = replace(launch, hardware=("h100x8",), log_path=tmp_path / "another.txt")
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: len(ranks(launch)) == 2, "both hosts run")
        adopting = pool.submit(launcher_of(cluster, tmp_path), smaller)
        until(lambda: "runs on 2xh100x8, and is adopted; wanted was h100x8" in caplog.text, "it is found")
        (tmp_path / "go").touch()
        first, second = running.result(WAIT_SECONDS), adopting.result(WAIT_SECONDS)
    assert (second.place, second.hardware) == (first.place, "2xh100x8")
    assert cluster.get(JOBS, object_name(launch)) is None


def test_launches_at_once_on_one_host_and_on_two_make_one_job(cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path) -> None:
    """Their recipes differ, the identity is one: the first to write the job file decides."""
    launch = gang_of(tmp_path, steps=[RANK, {"wait_for": str(tmp_path / "go")}])
    names = ("2xh100x8", "h100x8")
    launches = [replace(launch, hardware=(names[i % 2],), log_path=tmp_path / f"log{i}.txt") for i in range(6)]
    barrier = threading.Barrier(len(launches))

    def start(each: LaunchRequest) -> str:
        barrier.wait()
        return launcher_of(cluster, tmp_path)(each).hardware

    with ThreadPoolExecutor(len(launches)) as pool:
        running = [pool.submit(start, each) for each in launches]
        until(lambda: all(each.log_path.exists() and "rank" in each.log_path.read_text() for each in launches), "all follow it")
        (tmp_path / "go").touch()
        ran_on = {each.result(WAIT_SECONDS) for each in running}
    assert len(ran_on) == 1
    objects = [cluster.get(collection, object_name(launch)) is not None for collection in (JOBS, JOBSETS)]
    assert objects == ([False, True] if ran_on == {"2xh100x8"} else [True, False])


def test_of_a_gang_the_host_that_diverged_is_named(cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path) -> None:
    nan = {"print": "FloatingPointError: the loss of step 3 is nan on rank $MARIN_PROCESS_INDEX"}
    launch = gang_of(tmp_path, steps=[RANK, nan, {"exit": 1, "rank": "1"}, {"sleep": 30}])
    with pytest.raises(JobFailedError, match=r"diverged \(permanent\): FloatingPointError.*on rank 1"):
        launcher_of(cluster, tmp_path)(launch)


def test_what_comes_after_a_preemption_is_judged_by_itself(cluster: Cluster, gang_kubelet: Kubelet, tmp_path: Path) -> None:
    first, second = [RANK, {"wait_for": str(tmp_path / "go")}], [{"print": "FloatingPointError: the loss is nan"}, {"exit": 1}]
    launch = gang_of(tmp_path, attempts=[first, first, second], counter=str(tmp_path / "n"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: len(ranks(launch)) == 2, "both hosts run")
        taken = gang_kubelet.running(object_name(launch))[0].node
        gang_kubelet.reclaim_node(taken, grace_seconds=5)
        add_node(gang_kubelet, f"{taken}-again")
        with pytest.raises(JobFailedError, match=r"diverged \(permanent\)"):
            running.result(WAIT_SECONDS)
