"""Launches on a real API server, pods as processes: created once, adopted, refused, retried, left alone."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from control_plane import ControlPlane, RunningPlane
from kubelet import Kubelet
from launches import IMAGE, ROOT, WAIT_SECONDS, cordoned, launch_of, launcher_of, until

from lineage.jobs.job import LaunchRequest
from operations.probes.outcomes import send
from recipes.hardware import hardware
from resources.cluster import CONFIG_MAPS, JOBS, PODS, ApiError, Cluster
from resources.cluster_settings import Mount
from resources.job_account import LaunchRefusedError
from resources.job_kinds import JOB, Start, state_of
from resources.kubernetes_launcher import JobFailedError
from resources.manifests import ATTEMPT, HISTORY, JUDGED, object_name
from resources.probes import launcher_probes

pytestmark = pytest.mark.cluster

ORCHESTRATE = """
import sys
from pathlib import Path
from lineage.jobs.job import LaunchRequest
from resources.cluster import connect
from resources.failures import RetryPolicy
from resources.kubernetes_launcher import KubernetesLauncher
from resources.cluster_settings import ClusterSettings, Mount

kubeconfig, namespace, folder, image = sys.argv[1:]
settings = ClusterSettings(image, namespace, mounts=(Mount(folder, host_path=folder),))
paths = (Path(folder) / "job.json", Path(folder) / "log.txt")
launch = LaunchRequest("quick_job", *paths, "runs/a/checkpoint[b]", "0123456789abcdef")
policy = RetryPolicy(first_wait_seconds=0.1, max_wait_seconds=0.2)
KubernetesLauncher(connect(kubeconfig, namespace), settings, policy, poll_seconds=0.1)(launch)
"""


def step_of(plane: ControlPlane | RunningPlane, cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """Start an orchestrating step as a separate process, to be killed."""
    command = [sys.executable, "-c", ORCHESTRATE, str(plane.kubeconfig), cluster.namespace, str(folder), IMAGE]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_job_runs_to_its_end_and_its_log_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    lines = [{"print": f"line {i}"} for i in range(50)]
    launch = launch_of(tmp_path, steps=[*lines, {"sleep": 1.2}, {"print": "the last"}])
    launched = launcher_of(cluster, tmp_path)(launch)
    assert launch.log_path.read_text().splitlines() == [*(f"line {i}" for i in range(50)), "the last"]
    assert launched.place == f"Job {cluster.namespace}/runs-a-checkpoint-b-01234567"
    assert [attempt.ended for attempt in launched.attempts] == ["done"]
    assert " on cpu-0" in launched.attempts[0].place


def test_launching_twice_at_once_is_one_job(cluster: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, attempts=[[{"wait_for": str(tmp_path / "go")}]], counter=str(tmp_path / "starts"))
    others = [replace(launch, log_path=tmp_path / f"log{i}.txt") for i in range(3)]
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(launcher_of(cluster, tmp_path), each) for each in others]
        until((tmp_path / "starts").exists, "the pod starts")
        assert len(cluster.find(JOBS)) == 1
        (tmp_path / "go").touch()
        launched = [each.result(WAIT_SECONDS) for each in running]
    assert len({each.place for each in launched}) == 1
    assert len(list((tmp_path / "starts").iterdir())) == 1, "the job ran once"


def test_a_running_job_of_another_image_or_code_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, steps=[{"touch": str(tmp_path / "up")}, {"wait_for": str(tmp_path / "go")}])
    launcher = launcher_of(cluster, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher, launch)
        until((tmp_path / "up").exists, "the pod runs")
        other = replace(launcher, settings=replace(launcher.settings, image="marin:other"))
        with pytest.raises(
            LaunchRefusedError, match=r"image is marin:test, this launch has marin:other.*kubectl -n .* delete job"
        ):
            other(launch)
        longer = replace(launch, digest="0123456789-another")
        with pytest.raises(LaunchRefusedError, match="digest is 0123456789abcdef, this launch has 0123456789-another"):
            launcher(longer)
        (tmp_path / "go").touch()
        running.result(WAIT_SECONDS)


def test_a_killed_pod_is_tried_again_and_every_attempt_is_reported(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, attempts=[[{"print": "one"}, {"sleep": 60}], [{"print": "two"}]], counter=str(tmp_path / "n"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: launch.log_path.exists() and "one" in launch.log_path.read_text(), "the first attempt prints")
        kubelet.running(object_name(launch))[0].kill()
        launched = running.result(WAIT_SECONDS)
    assert [attempt.number for attempt in launched.attempts] == [1, 2]
    assert launched.attempts[0].ended.startswith("killed (transient): exit code 137 (SIGKILL)")
    assert launch.log_path.read_text().splitlines() == ["one", "two"]
    assert cluster.find(JOBS)[0]["metadata"]["annotations"][ATTEMPT] == "2"


def test_a_permanent_failure_is_not_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    nan = "FloatingPointError: run smoke: the loss of step 3 is nan; its update was left out"
    launch = launch_of(tmp_path, attempts=[[{"print": nan}, {"exit": 1}]], counter=str(tmp_path / "n"))
    with pytest.raises(
        JobFailedError, match=r"diverged \(permanent\): FloatingPointError.*trying again would end the same way"
    ):
        launcher_of(cluster, tmp_path)(launch)
    assert len(list((tmp_path / "n").iterdir())) == 1
    with pytest.raises(JobFailedError):
        launcher_of(cluster, tmp_path)(launch)
    assert len(list((tmp_path / "n").iterdir())) == 2, "a person who launches again gets a new job"


def test_a_step_that_dies_between_two_attempts_takes_no_failure_with_it(
    plane: ControlPlane | RunningPlane, cluster: Cluster, tmp_path: Path
) -> None:
    """It is killed after the first attempt is judged and deleted, and before the second is made: three failures still count as
    three.
    """
    reset = [[{"wait_for": str(tmp_path / "go")}, {"print": f"ConnectionResetError: {i}"}, {"exit": 1}] for i in range(9)]
    launch = launch_of(tmp_path, attempts=reset, counter=str(tmp_path / "n"))
    path = f"{JOBS.format(namespace=cluster.namespace)}/{object_name(launch)}"
    step = step_of(plane, cluster, tmp_path)
    until(lambda: (tmp_path / "n").exists(), "the first attempt runs")
    cluster.merge(path, {"metadata": {"finalizers": ["marin.community/held"]}})  # so that it surely dies in between
    (tmp_path / "go").touch()
    until(lambda: "deletionTimestamp" in (cluster.get(JOBS, object_name(launch)) or {})["metadata"], "the step deletes it")
    step.kill()
    step.wait()
    threading.Timer(2, cluster.merge, (path, {"metadata": {"finalizers": None}})).start()
    with pytest.raises(JobFailedError, match=r"(?s)crash loop: 3 failures in a row.*  1\. after .*  3\. after"):
        launcher_of(cluster, tmp_path)(launch)
    assert len(list((tmp_path / "n").iterdir())) == 3


def test_a_step_that_dies_when_it_has_judged_leaves_a_failure_that_counts_once(cluster: Cluster, tmp_path: Path) -> None:
    reset = [[{"print": f"ConnectionResetError: {i}"}, {"exit": 1}] for i in range(9)]
    launch = launch_of(tmp_path, attempts=reset, counter=str(tmp_path / "n"))
    launcher = launcher_of(cluster, tmp_path)
    launcher.submit(launch, Start(hardware("cpu"), JOB))
    until(lambda: state_of(JOB, cluster.get(JOBS, object_name(launch)) or {}) == "failed", "the first attempt fails")
    judged = {HISTORY: '[{"seconds": 1.0, "kind": "transient", "cause": "network", "because": "ConnectionResetError: 0"}]'}
    uid = cluster.find(JOBS)[0]["metadata"]["uid"]
    with pytest.raises(ApiError):
        cluster.annotate(JOBS, object_name(launch), "of-another-job", {JUDGED: "yes"})
    cluster.annotate(JOBS, object_name(launch), uid, {**judged, JUDGED: "yes"})
    with pytest.raises(JobFailedError, match="crash loop: 3 failures in a row"):
        launcher(launch)
    assert len(list((tmp_path / "n").iterdir())) == 3


def test_a_crash_loop_is_reported_after_three(cluster: Cluster, tmp_path: Path) -> None:
    reset = [[{"print": f"ConnectionResetError: [Errno 104] by peer 10.0.0.{i}"}, {"exit": 1}] for i in range(9)]
    launch = launch_of(tmp_path, attempts=reset, counter=str(tmp_path / "n"))
    with pytest.raises(JobFailedError, match=r"(?s)crash loop: 3 failures in a row.*  1\. after .*  3\. after"):
        launcher_of(cluster, tmp_path)(launch)
    assert len(list((tmp_path / "n").iterdir())) == 3


def test_an_image_that_is_not_there_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    launcher = launcher_of(cluster, tmp_path, stuck_seconds=0.5)
    launcher = replace(launcher, settings=replace(launcher.settings, image="nowhere/marin:1"))
    with pytest.raises(JobFailedError, match=r"image pull \(transient\): ErrImagePull: image nowhere/marin:1.*crash loop"):
        launcher(launch_of(tmp_path))


def test_a_job_file_that_is_too_large_leaves_nothing_on_the_server(cluster: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, steps=[], padding="x" * 1_100_000)
    with pytest.raises(ValueError, match="a ConfigMap holds at most"):
        launcher_of(cluster, tmp_path)(launch)
    assert (cluster.find(JOBS), cluster.find(PODS)) == ([], [])


def test_a_job_file_that_a_quota_refuses_leaves_nothing_on_the_server(cluster: Cluster, tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"count/configmaps": "0"}},
    }
    cluster.create("/api/v1/namespaces/{namespace}/resourcequotas", quota)
    until(lambda: cluster.find("/api/v1/namespaces/{namespace}/resourcequotas")[0].get("status", {}).get("hard"), "it counts")
    with pytest.raises(ApiError, match="exceeded quota: few"):
        launcher_of(cluster, tmp_path)(launch_of(tmp_path, steps=[]))
    assert cluster.find(JOBS) == []


def test_a_probe_of_submission_makes_no_job_and_names_what_refuses_it(cluster: Cluster, tmp_path: Path) -> None:
    launcher = launcher_of(cluster, tmp_path)
    probes = launcher_probes(launcher)
    assert all(outcome.ok for outcome in send(probes, lambda: datetime.datetime.now(datetime.UTC)))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    cluster.create("/api/v1/namespaces/{namespace}/resourcequotas", quota)
    until(lambda: cluster.find("/api/v1/namespaces/{namespace}/resourcequotas")[0].get("status", {}).get("hard"), "it counts")
    api_server, job_submit = send(probes, lambda: datetime.datetime.now(datetime.UTC))
    assert api_server.ok and not job_submit.ok and "exceeded quota: few" in job_submit.why
    away = launcher_probes(replace(launcher, cluster=replace(cluster, server="https://127.0.0.1:1", patience_seconds=900.0)))
    assert not any(outcome.ok for outcome in send(away, lambda: datetime.datetime.now(datetime.UTC)))
    assert (cluster.find(JOBS), cluster.find(PODS)) == ([], [])


def test_a_job_file_goes_with_its_job(cluster: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, steps=[{"print": "done"}])
    launcher_of(cluster, tmp_path)(launch)
    names = [each["metadata"]["name"] for each in cluster.find(CONFIG_MAPS, "marin.community/job")]
    assert names == [f"{object_name(launch)}-1"]
    cluster.delete(JOBS, object_name(launch))
    until(lambda: not cluster.find(CONFIG_MAPS, "marin.community/job"), "it is collected")


def test_a_mounted_secret_that_is_not_there_is_named(cluster: Cluster, tmp_path: Path) -> None:
    launcher = launcher_of(cluster, tmp_path, stuck_seconds=2.0)
    mounts = (*launcher.settings.mounts, Mount("/etc/gcs", secret="gcs-credentials"))
    launcher = replace(launcher, settings=replace(launcher.settings, mounts=mounts))
    with pytest.raises(
        JobFailedError, match=r'missing volume \(permanent\): .*FailedMount: .*secret "gcs-credentials" not found'
    ):
        launcher(launch_of(tmp_path, steps=[]))
    until(lambda: not cluster.find(PODS), "its pod gives its node back")


def test_preempted_nodes_spend_no_retries(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    """More often than a crash loop would allow; each preemption takes the node too, and another node comes."""
    taken = 4
    shape = {"steps": [{"print": "up"}, {"wait_for": str(tmp_path / "go")}]}
    launch = launch_of(tmp_path, **shape)
    launcher = launcher_of(cluster, tmp_path)
    with ThreadPoolExecutor(1) as pool, cordoned(kubelet):
        running = pool.submit(launcher, launch)
        for number in range(taken):
            kubelet.add_node(f"spot-{number}")
            until(lambda n=number: _ups(launch) > n and kubelet.running(object_name(launch)), f"attempt {number} runs")
            kubelet.reclaim_node(f"spot-{number}", grace_seconds=5)
        (tmp_path / "go").touch()
        kubelet.add_node("spot-last")
        launched = running.result(WAIT_SECONDS)
    ends = [attempt.ended for attempt in launched.attempts]
    assert ends == ["preemption (transient): DisruptionTarget: TerminationByKubelet"] * taken + ["done"]


def _ups(launch: LaunchRequest) -> int:
    return launch.log_path.read_text().count("up") if launch.log_path.exists() else 0


def test_the_step_may_die_and_the_next_one_adopts_its_job(
    plane: ControlPlane | RunningPlane, cluster: Cluster, tmp_path: Path
) -> None:
    launch = launch_of(tmp_path, attempts=[[{"wait_for": str(tmp_path / "go")}]], counter=str(tmp_path / "starts"))
    step = step_of(plane, cluster, tmp_path)
    until((tmp_path / "starts").exists, "the pod starts")
    step.kill()
    step.wait()
    before = [job["metadata"]["uid"] for job in cluster.find(JOBS)]
    threading.Timer(1.0, (tmp_path / "go").touch).start()
    launched = launcher_of(cluster, tmp_path)(launch)
    assert [job["metadata"]["uid"] for job in cluster.find(JOBS)] == before
    assert len(list((tmp_path / "starts").iterdir())) == 1
    assert [attempt.ended for attempt in launched.attempts] == ["done"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT reach this process: the children of a shell's `&` ignore it, tests included."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_step_that_is_stopped_leaves_its_job_unless_a_user_cancels(
    cluster: Cluster, interruptible: None, tmp_path: Path
) -> None:
    launch = launch_of(tmp_path, steps=[{"touch": str(tmp_path / "up")}, {"wait_for": str(tmp_path / "go")}])
    for cancelled in (False, True):
        threading.Thread(target=_interrupt_when, args=(tmp_path / "up",), daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            launcher_of(cluster, tmp_path, is_cancelled=lambda c=cancelled: c)(launch)
        jobs = [job for job in cluster.find(JOBS) if "deletionTimestamp" not in job["metadata"]]
        assert len(jobs) == (0 if cancelled else 1)
    until(lambda: not cluster.find(PODS), "the cancelled job's pod goes")


def _interrupt_when(path: Path) -> None:
    until(path.exists, "the pod runs")
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


def test_the_api_server_may_die_while_a_job_runs(mortal_plane: ControlPlane, cluster: Cluster, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, attempts=[[{"print": "up"}, {"wait_for": str(tmp_path / "go")}]], counter=str(tmp_path / "n"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_of(cluster, tmp_path), launch)
        until(lambda: _ups(launch), "the pod runs")
        mortal_plane.kill_api_server()
        (tmp_path / "go").touch()
        time.sleep(1.0)
        mortal_plane.start_api_server()
        launched = running.result(WAIT_SECONDS)
    assert [attempt.ended for attempt in launched.attempts] == ["done"]
    assert len(list((tmp_path / "n").iterdir())) == 1
