"""Decisions of the cluster launcher over an in-memory API server; tests/lab/test_launches.py has a real one."""

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from memory_cluster import MemoryCluster

from lineage.jobs.job import LaunchRequest
from recipes.hardware import hardware
from resources.cluster import CONFIG_MAPS, EVENTS, JOBS, JOBSETS, WORKLOADS, ApiError, Cluster
from resources.cluster_settings import ClusterSettings
from resources.failures import RetryPolicy
from resources.job_account import LaunchRefusedError, to_json
from resources.job_kinds import JOB, JOBSET, Start
from resources.kubernetes_launcher import JobFailedError, KubernetesLauncher
from resources.manifests import ATTEMPT, job_file, jobset_manifest, object_name

RESET = "ConnectionResetError: [Errno 104] by peer"


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    (tmp_path / "job.json").write_text("{}")
    given = ("runs/tiny/checkpoint", "0123456789abcdef", "c0de", ("h100x8",))
    return LaunchRequest("trainer", tmp_path / "job.json", tmp_path / "log.txt", *given)


def launcher_over(cluster: MemoryCluster, **options: Any) -> KubernetesLauncher:
    policy = RetryPolicy(first_wait_seconds=0, max_wait_seconds=0)
    settings = ClusterSettings("marin@sha256:1", "lab")
    given = {"poll_seconds": 0.0, "stuck_seconds": 0.5, **options}
    return KubernetesLauncher(cast(Cluster, cluster), settings, policy, **given)


def gang_of(cluster: MemoryCluster, launch: LaunchRequest, attempt: int = 1) -> dict[str, Any]:
    """The job set that an earlier step made of the same identity, when its recipe still said two nodes."""
    settings = ClusterSettings("marin@sha256:1", "lab")
    body = jobset_manifest(replace(launch, hardware=()), hardware("2xh100x8"), settings, attempt, to_json(()))
    return cluster.create(JOBSETS, body)


def test_what_runs_on_other_hardware_is_adopted_and_not_made_twice(launch: LaunchRequest) -> None:
    """Hardware is in no identity: a recipe that says one node while the step of two is gone means the job that is there."""
    cluster = MemoryCluster(looks=lambda attempt: 3)
    gang_of(cluster, launch)
    launched = launcher_over(cluster)(launch)
    assert (launched.place, launched.hardware) == (f"JobSet lab/{object_name(launch)}", "2xh100x8")
    assert cluster.names(JOBS) == []


def test_what_runs_on_other_hardware_for_something_else_is_refused(launch: LaunchRequest) -> None:
    cluster = MemoryCluster(looks=lambda attempt: 3)
    gang_of(cluster, replace(launch, code="older"))
    with pytest.raises(LaunchRefusedError, match=r"code is older, this launch has c0de.*kubectl -n lab delete jobset"):
        launcher_over(cluster)(launch)
    assert cluster.names(JOBS) == []


def test_what_ended_on_other_hardware_makes_room_and_its_attempts_count_on(launch: LaunchRequest) -> None:
    """Its pods may linger and its job file has its name: another first attempt would be taken for it."""
    cluster = MemoryCluster(looks=lambda attempt: 0 if attempt == 2 else 2)
    gang_of(cluster, launch, attempt=2)
    launched = launcher_over(cluster)(launch)
    assert (launched.place, launched.hardware) == (f"Job lab/{object_name(launch)}", "h100x8")
    assert cluster.names(JOBSETS) == []
    assert cluster.objects[JOBS, object_name(launch)]["metadata"]["annotations"][ATTEMPT] == "3"
    assert cluster.names(CONFIG_MAPS) == [f"{object_name(launch)}-3"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_user_who_cancels_stops_what_was_adopted(launch: LaunchRequest, cancelled: bool) -> None:
    looked: list[int] = []

    def interrupted(attempt: int) -> int:
        looked.append(attempt)
        if len(looked) == 3:  # adopted, and watched
            raise KeyboardInterrupt
        return 9

    cluster = MemoryCluster(looks=interrupted)
    gang_of(cluster, launch)
    with pytest.raises(KeyboardInterrupt):
        launcher_over(cluster, is_cancelled=lambda: cancelled)(launch)
    left = [] if cancelled else [(JOBSETS, object_name(launch)), (CONFIG_MAPS, f"{object_name(launch)}-1")]
    assert list(cluster.objects) == left


def test_three_failures_that_are_one_end_it_and_the_fourth_launch_is_a_persons(launch: LaunchRequest) -> None:
    cluster = MemoryCluster(fails=lambda attempt: RESET)
    with pytest.raises(JobFailedError, match=r"(?s)crash loop: 3 failures in a row.*  1\. after .*  3\. after"):
        launcher_over(cluster)(launch)
    assert [name for where, name in cluster.created if where == JOBS] == [object_name(launch)] * 3
    cluster.fails = lambda attempt: ""
    assert [attempt.number for attempt in launcher_over(cluster)(launch).attempts] == [4]


@pytest.mark.parametrize("change", [{"code": "older"}, {"digest": "01234567-another"}])
def test_a_failure_of_other_code_that_nobody_judged_is_not_this_launchs(launch: LaunchRequest, change: dict[str, str]) -> None:
    """The step died with that failure. After a fix, a new launch must not report that it would end the same way."""
    nan = "FloatingPointError: the loss of step 3 is nan"
    cluster = MemoryCluster(looks=lambda attempt: 0, fails=lambda attempt: nan if attempt == 1 else "")
    launcher_over(cluster).submit(replace(launch, **change), Start(hardware("h100x8"), JOB))
    assert [(each.number, each.ended) for each in launcher_over(cluster)(launch).attempts] == [(2, "done")]
    again = MemoryCluster(looks=lambda attempt: 0, fails=lambda attempt: nan)
    launcher_over(again).submit(launch, Start(hardware("h100x8"), JOB))
    with pytest.raises(JobFailedError, match="diverged"):
        launcher_over(again)(launch)
    assert len([name for where, name in again.created if where == JOBS]) == 1, "its own is judged"


def test_a_step_that_adopts_tells_the_hardware_that_it_ran_on(launch: LaunchRequest) -> None:
    cluster = MemoryCluster(looks=lambda attempt: 2)
    launcher_over(cluster).submit(replace(launch, hardware=("2xv6e-16",)), Start(hardware("2xv6e-16"), JOBSET))
    assert launcher_over(cluster)(replace(launch, hardware=("2xh100x8",))).hardware == "2xv6e-16"


def test_a_job_file_that_is_too_large_is_refused_before_anything_is_made(launch: LaunchRequest) -> None:
    cluster = MemoryCluster()
    launch.job_path.write_text("x" * 1_000_001)
    with pytest.raises(ValueError, match="has 1000001 bytes; a ConfigMap holds at most"):
        launcher_over(cluster)(replace(launch, hardware=("v4-512",)))
    assert cluster.created == []


def test_a_job_file_that_the_cluster_refuses_leaves_no_job(launch: LaunchRequest) -> None:
    quota = ApiError(403, "exceeded quota: marin-objects, requested: count/configmaps=1", "POST configmaps")
    cluster = MemoryCluster(refused={CONFIG_MAPS: quota})
    with pytest.raises(ApiError, match="exceeded quota: marin-objects"):
        launcher_over(cluster)(launch)
    assert cluster.created == []


def test_a_step_that_dies_after_the_job_file_leaves_nothing_that_holds_a_node(launch: LaunchRequest) -> None:
    """And the next launch uses the file."""
    cluster = MemoryCluster(refused={JOBS: ApiError(500, "the step dies here", "POST jobs")})
    with pytest.raises(ApiError, match="the step dies here"):
        launcher_over(cluster)(launch)
    assert cluster.names(JOBS) == []
    cluster.refused.clear()
    assert [attempt.ended for attempt in launcher_over(cluster)(launch).attempts] == ["done"]
    assert cluster.names(CONFIG_MAPS) == [f"{object_name(launch)}-1"]
    (owner,) = cluster.objects[CONFIG_MAPS, f"{object_name(launch)}-1"]["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.objects[JOBS, object_name(launch)]["metadata"]["uid"]


def test_a_file_of_other_code_without_a_job_is_passed_over(launch: LaunchRequest) -> None:
    cluster = MemoryCluster()
    older = job_file(replace(launch, code="older"), hardware("h100x8"), ClusterSettings("marin@sha256:1", "lab"), 1)
    cluster.create(CONFIG_MAPS, older)
    assert [attempt.number for attempt in launcher_over(cluster)(launch).attempts] == [2]


@pytest.mark.parametrize("round_", range(5))
def test_launches_of_one_identity_at_once_make_one_job_whatever_the_hardware(launch: LaunchRequest, round_: int) -> None:
    """Eight recipes name four kinds of hardware, and all start together: one creates the job, and the others adopt it."""
    looked: Counter[int] = Counter()

    def looks(attempt: int) -> int:
        """The job ends when every launch has looked at it often enough to have adopted it."""
        looked[threading.get_ident()] += 1
        return 0 if len(looked) == len(launches) and min(looked.values()) > 10 else 10**9

    cluster = MemoryCluster(looks)
    names = ("h100x8", "2xh100x8", "v5p-8", "v6e-16")
    launches = [replace(launch, hardware=(names[i % 4],), log_path=launch.log_path.with_name(f"{i}.txt")) for i in range(8)]
    barrier = threading.Barrier(len(launches))

    def start(each: LaunchRequest) -> str:
        barrier.wait()
        return launcher_over(cluster, poll_seconds=0.001, stuck_seconds=60.0)(each).hardware

    with ThreadPoolExecutor(len(launches)) as pool:
        ran_on = set(pool.map(start, launches))
    assert len(ran_on) == 1
    assert len([where for where, _ in cluster.created if where in (JOBS, JOBSETS)]) == 1
    assert len(cluster.names(CONFIG_MAPS)) == 1


CREATING = {
    "phase": "Pending",
    "containerStatuses": [{"name": "job", "state": {"waiting": {"reason": "ContainerCreating"}}}],
}


def no_mount(kind: str) -> dict[str, str]:
    message = f'MountVolume.SetUp failed for volume "mount-0" : {kind} "gcs-credentials" not found'
    return {"reason": "FailedMount", "message": message, "lastTimestamp": "2026-11-24T00:00:00Z"}


@pytest.mark.parametrize("kind", ["secret", "configmap"])
def test_a_volume_that_is_not_there_is_named_and_ends_the_job(launch: LaunchRequest, kind: str) -> None:
    cluster = MemoryCluster(looks=lambda attempt: 10**9, pod_status=CREATING, lists={EVENTS: [no_mount(kind)]})
    with pytest.raises(
        JobFailedError, match=rf'missing volume \(permanent\): .*FailedMount: .*{kind} "gcs-credentials" not found'
    ):
        launcher_over(cluster, stuck_seconds=0.0)(launch)
    assert cluster.names(JOBS) == [], "its pod held a node"


def test_a_container_that_is_never_created_is_tried_elsewhere_and_then_given_up(launch: LaunchRequest) -> None:
    cluster = MemoryCluster(looks=lambda attempt: 10**9, pod_status=CREATING)
    launcher = launcher_over(cluster, stuck_seconds=10**9)
    with pytest.raises(JobFailedError, match=r"never started \(transient\): ContainerCreating.*crash loop: 3"):
        replace(launcher, settings=replace(launcher.settings, start_seconds=0.0))(launch)
    assert len([where for where, _ in cluster.created if where == JOBS]) == 3


def workload(message: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": message}]}}


def test_a_job_that_its_queue_holds_says_why_and_waits_no_longer_than_allowed(
    launch: LaunchRequest, caplog: pytest.LogCaptureFixture
) -> None:
    reason = (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100x8, 8 more needed"
    )
    cluster = MemoryCluster(looks=lambda attempt: 10**9, suspended=True, lists={WORKLOADS: [workload(reason)]})
    launcher = launcher_over(cluster, stuck_seconds=0.0)
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(JobFailedError, match=r"no machine \(permanent\): not within 0 s: suspended"),
    ):
        replace(launcher, settings=replace(launcher.settings, machine_seconds=1e-9))(launch)
    assert any(reason in record.getMessage() for record in caplog.records)
    assert cluster.names(JOBS) == []


def test_a_job_that_is_larger_than_its_queue_is_not_waited_for(launch: LaunchRequest) -> None:
    reason = "insufficient quota for cpu in flavor cpu, request > maximum capacity (16 > 8)"
    cluster = MemoryCluster(looks=lambda attempt: 10**9, suspended=True, lists={WORKLOADS: [workload(reason)]})
    with pytest.raises(JobFailedError, match=r"larger than its queue \(permanent\): .*maximum capacity \(16 > 8\)"):
        launcher_over(cluster, stuck_seconds=0.0)(launch)


def test_evictions_end_although_kubernetes_replaces_the_pod_each_time(launch: LaunchRequest) -> None:
    """A kubelet's eviction carries `DisruptionTarget`, so the Job controller replaces the pod for ever."""
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 24Mi."
    evicted: list[dict[str, Any]] = []

    class Evicting(MemoryCluster):
        def find(self, collection: str, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
            (pod,) = super().find(collection, selector, fields)
            number = len(evicted)
            pod["metadata"] |= {"uid": f"pod-{number}", "creationTimestamp": f"2026-11-24T00:00:{number:02d}Z"}
            pod["status"] = {
                "phase": "Failed",
                "reason": "Evicted",
                "message": message,
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
            }
            evicted.append(pod)
            return [pod]

    cluster = Evicting(looks=lambda attempt: 10**9)
    with pytest.raises(JobFailedError, match=r"evictions \(permanent\): its pods were evicted 3 times: The node was low"):
        launcher_over(cluster)(launch)
    assert len(evicted) == 3


@pytest.mark.parametrize(("phase", "ended"), [("Succeeded", "done"), ("Running", "deleted")])
def test_a_runner_whose_node_goes_after_it_has_ended_is_done(launch: LaunchRequest, phase: str, ended: str) -> None:
    """Two runners, of which the first is gone before the job ends: Kubernetes deletes the pods of a node that is gone."""

    class Losing(MemoryCluster):
        def find(self, collection: str, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
            (pod,) = super().find(collection, selector, fields)
            first = {**pod, "metadata": {**pod["metadata"], "uid": "first", "creationTimestamp": "2026-11-21T00:00:00Z"}}
            first["status"] = {**pod["status"], "phase": phase}
            (job,) = (resource for (where, _), resource in self.objects.items() if where == JOBS)
            return [pod] if self.seen.get(job["metadata"]["uid"]) else [first, pod]

    launched = launcher_over(Losing(looks=lambda attempt: 2))(replace(launch, hardware=("cpu",), indices=2))
    assert [attempt.ended for attempt in launched.attempts] == [ended, "done"]
