"""Decisions of the cluster launcher over an in-memory API server; tests/lab/test_launches.py has a real one."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from memory_cluster import MemoryCluster

from lineage.jobs.job import LaunchRequest
from recipes.hardware import hardware
from resources.cluster import CONFIG_MAPS, JOBS, JOBSETS, Cluster
from resources.cluster_settings import ClusterSettings
from resources.failures import RetryPolicy
from resources.job_account import LaunchRefusedError, to_json
from resources.job_kinds import JOB, JOBSET, Start
from resources.kubernetes_launcher import JobFailedError, KubernetesLauncher
from resources.manifests import ATTEMPT, jobset_manifest, object_name

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
    """The step died with it; who mends the program and launches again must not be told that it would end the same way."""
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
