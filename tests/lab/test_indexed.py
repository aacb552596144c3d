"""A data stage as an Indexed Job of 8 pods over a bucket: equal bytes; with a bad shard; with killed pods."""

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from control_plane import ControlPlane, RunningPlane
from gcs_server import GcsServer
from indexed_jobs import KEPT, IndexedJobs
from kubelet import Kubelet
from launches import ROOT, WAIT_SECONDS, cordoned, launcher_of, until
from pod_process import PodProcess
from sharded_stage import LENGTHS, Words

from lineage.artifact.store import Artifact, Store
from lineage.build.fan_out import FanOut
from lineage.build.incomplete import read_incomplete
from lineage.build.nodes import MissingArtifactError, Node, resolve, spec_of
from lineage.build.plan import build
from lineage.shards.failures import IncompleteError
from lineage.stage import Stage
from lineage.trust.gate import GateError
from lineage.writing.writer import Writer
from resources.cluster import JOBS, Cluster
from resources.manifests import ATTEMPT

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
EIGHT = tuple("abcdefgh")


def lengths() -> Node:
    return Node(("tests", "lengths"), "p", LENGTHS, Words(EIGHT))


def count(out: Writer, config: str, words: Artifact) -> None:
    (out.folder / "n.txt").write_text(str(len(words.files(".txt"))))


AFTER = Node(("tests", "after"), "p", Stage("tests.after", "1", count, gate={}), "", {"words": lengths()})


@pytest.fixture(scope="module")
def indexed(plane: ControlPlane | RunningPlane, kubelet: Kubelet) -> Iterator[IndexedJobs]:
    with IndexedJobs(plane.cluster("default")) as running:
        yield running
        assert not running.errors


@pytest.fixture
def store(gcs: GcsServer, tmp_path: Path) -> Store:
    """Return a store in a bucket. Pods of this machine see its scratch folder, like a pod's own disk."""
    (tmp_path / "scratch").mkdir()
    return Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))


@pytest.fixture
def fan_out(indexed: IndexedJobs, cluster: Cluster, gcs: GcsServer, store: Store) -> FanOut:
    launcher = launcher_of(indexed.front(cluster), store.scratch)
    env = {"STORAGE_EMULATOR_HOST": gcs.url, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'lineage'}"}
    return FanOut(replace(launcher, settings=replace(launcher.settings, env=env)), runners=8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return the artifact that one process makes."""
    return build(Store(str(tmp_path_factory.mktemp("whole"))), lengths()).artifact


def ran(store: Store) -> Counter[str]:
    return Counter((store.scratch / "log").read_text().split())


def attempt_of(cluster: Cluster) -> str:
    (job,) = cluster.find(JOBS)
    return job["metadata"]["annotations"][ATTEMPT]


def test_one_poisoned_of_eight_is_quarantined_and_the_gate_refuses(
    store: Store, fan_out: FanOut, cluster: Cluster, whole: Artifact
) -> None:
    (store.scratch / "bad-f").touch()
    with pytest.raises(IncompleteError, match="1 of 8 shards failed") as caught:
        build(store, lengths(), fan_out=fan_out)
    (failure,) = caught.value.failures
    assert (failure.name, failure.error, caught.value.num_finished) == ("write-f", "ValueError: f cannot be read", 7)
    assert ran(store) == Counter(EIGHT), "every shard once, in a pod"
    (job,) = cluster.find(JOBS)
    assert job["status"]["succeeded"] == 8 and '"completionMode": "Indexed"' in job["metadata"]["annotations"][KEPT]
    record = read_incomplete(store, spec_of(store, lengths()).address)
    assert record is not None and [failed.name for failed in record.failures] == ["write-f"]
    with pytest.raises(MissingArtifactError, match=r"lengths\[p\] is incomplete"):
        resolve(store, lengths())
    with pytest.raises(GateError, match=r"incomplete.*write-f"):
        build(store, AFTER)
    (store.scratch / "bad-f").unlink()
    built = build(store, lengths(), fan_out=fan_out)
    assert built.artifact.data_version == whole.data_version
    assert ran(store) == Counter([*EIGHT, "f", *(name.upper() for name in EIGHT)])
    build(store, AFTER)
    assert built.launched is not None and {attempt.ended for attempt in built.launched.attempts} == {"done"}
    assert len(built.launched.attempts) == 1 + 8, "one runner for the shard that was missing, eight for the second map"


def test_a_killed_runner_is_tried_again_and_a_taken_one_costs_nothing(
    store: Store, fan_out: FanOut, cluster: Cluster, kubelet: Kubelet, whole: Artifact
) -> None:
    (store.scratch / "die-b").touch()
    for name in "cd":
        (store.scratch / f"wait-{name}").touch()
    with ThreadPoolExecutor(1) as pool:
        with cordoned(kubelet):
            kubelet.add_node("spot-runners")
            running = pool.submit(build, store, lengths(), fan_out=fan_out)
            until(lambda: (store.scratch / "log").exists() and ran(store) >= Counter(EIGHT), "every runner has begun")
            until(lambda: len(_waiting(kubelet)) == 2, "two are left")
            assert {pod.node for pod in _waiting(kubelet)} == {"spot-runners"}
            kubelet.reclaim_node("spot-runners", grace_seconds=1)
            for name in "cd":
                (store.scratch / f"wait-{name}").unlink()
        built = running.result(2 * WAIT_SECONDS)
    assert built.artifact.data_version == whole.data_version
    first_map = {name: times for name, times in ran(store).items() if name.islower()}
    assert first_map == dict.fromkeys(EIGHT, 1) | dict.fromkeys("bcd", 2), (
        f"the others were done once; pods: {_places(kubelet)}"
    )
    assert built.launched is not None
    (failed,) = [attempt.ended for attempt in built.launched.attempts if attempt.ended != "done"]
    assert failed.startswith("killed (transient): exit code 137"), "two preempted runners spent nothing"


def _waiting(kubelet: Kubelet) -> list[PodProcess]:
    return [pod for pod in list(kubelet.pods.values()) if pod.is_running()]


def _places(kubelet: Kubelet) -> list[tuple[str, str]]:
    return [(pod.name, pod.node) for pod in kubelet.history if "lengths" in pod.name]
