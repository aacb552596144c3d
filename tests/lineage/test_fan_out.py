"""Shards by runners launched as one indexed job: bytes equal to one process's, failures by name."""

import gc
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gcs_server import Fault, GcsServer
from poison import poisoned
from sharded_stage import NAMES, lengths

from lineage.artifact.store import Artifact, Store
from lineage.build.fan_out import FanOut
from lineage.build.incomplete import read_incomplete
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRequest
from lineage.shards.failures import IncompleteError
from lineage.shards.shared import SHARED_FOLDER
from lineage.stage import Stage
from lineage.trust.gate import GateError
from lineage.writing.writer import Writer

HERE = Path(__file__).parent
RUNNERS = FanOut(run_subprocess, runners=2)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners are processes of their own; the stage of these tests is in this folder."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """What one process makes."""
    return build(Store(str(tmp_path_factory.mktemp("whole"))), lengths()).artifact


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "shared").mkdir()
    return Store(str(tmp_path / "shared"))


def ran(root: Path) -> list[str]:
    return (root / "log").read_text().split()


def read_all(out: Writer, config: str, words: Artifact) -> None:
    (out.folder / "n.txt").write_text(str(len(words.files(".txt"))))


def gated() -> Node:
    """Something that is launched on the stage's artifact, behind the gate."""
    return Node(("tests", "after"), "p", Stage("tests.after", "1", read_all, gate={}), "", {"words": lengths()})


def test_failed_and_killed_shards_are_named_the_gate_refuses_and_the_rest_is_done_once(store: Store, whole: Artifact) -> None:
    root = Path(store.root)
    (root / "bad-c").touch()
    (root / "die-f").touch()  # the last shard of runner 1, which has b, d and f
    with pytest.raises(IncompleteError, match="2 of 7 shards failed") as caught:
        build(store, lengths(), fan_out=RUNNERS)
    poisoned_shard, killed = caught.value.failures
    assert (poisoned_shard.name, poisoned_shard.kind) == ("write-c", "permanent")
    assert poisoned_shard.error == "ValueError: c cannot be read" and "in write_word" in poisoned_shard.traceback
    assert "--only write-c" in poisoned_shard.command
    assert (killed.name, killed.kind) == ("write-f", "killed")
    assert "its runner died: " in killed.error and "ended with status -9" in killed.error
    assert caught.value.num_finished == 5
    assert read_incomplete(store, spec_of(store, lengths()).address) is not None
    with pytest.raises(GateError, match=r"incomplete.*write-c"):
        build(store, gated())
    (root / "bad-c").unlink()
    built = build(store, lengths(), fan_out=RUNNERS)
    assert built.artifact.data_version == whole.data_version
    assert built.artifact.manifest.statistics == whole.manifest.statistics
    assert Counter(ran(root)) == Counter([*NAMES, "c", "f", *(name.upper() for name in NAMES)]), "only what was missing"
    assert built.launched is not None
    assert [attempt.ended for attempt in built.launched.attempts] == ["done"] * 4, "two runners for each of two maps"
    assert not store.storage.sizes(SHARED_FOLDER), "what was shared goes at the commit"
    build(store, gated())


def test_shards_that_the_step_has_finished_are_handed_to_runners_of_a_later_map(store: Store, whole: Artifact) -> None:
    root = Path(store.root)
    with pytest.raises(IncompleteError):
        build(store, poisoned(lengths(), {f"measure-{name}": "value" for name in "bcd"}))
    (root / "log").unlink()
    assert build(store, lengths(), fan_out=RUNNERS).artifact.data_version == whole.data_version
    assert sorted(ran(root)) == ["B", "C", "D"], "of the first map none is done again"


def test_when_no_runner_does_anything_the_launchers_own_error_is_reported(store: Store) -> None:
    def broken(launch: LaunchRequest) -> None:
        raise RuntimeError("no such image")

    with pytest.raises(RuntimeError, match="no such image"):
        build(store, lengths(), fan_out=FanOut(broken, 2))  # type: ignore[arg-type]
    assert read_incomplete(store, spec_of(store, lengths()).address) is None


def test_runners_that_end_well_and_do_nothing_are_no_endless_loop(store: Store, tmp_path: Path) -> None:
    launched: list[LaunchRequest] = []

    def idle(launch: LaunchRequest) -> object:
        launched.append(launch)
        (tmp_path / "nothing.json").write_text("1")
        return run_subprocess(
            LaunchRequest("json.tool", tmp_path / "nothing.json", launch.log_path, launch.name, launch.digest)
        )

    with pytest.raises(RuntimeError, match="runners exited 0 3 times but shards write-a, write-b"):
        build(store, lengths(), fan_out=FanOut(idle, 20))  # type: ignore[arg-type]
    assert {launch.indices for launch in launched} == {len(NAMES)}, "never more runners than shards"


def test_no_runners_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fan_out\.runners is 0"):
        FanOut(run_subprocess, 0)


@pytest.fixture
def bucket(gcs: GcsServer, tmp_path: Path) -> Iterator[Store]:
    gcs.faults.clear()
    gcs.counts.clear()
    yield Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    gcs.faults.clear()
    gc.collect()  # the sockets of broken answers: here, where they are expected


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_over_a_bucket_they_make_the_same_bytes_whatever_it_answers(bucket: Store, gcs: GcsServer, whole: Artifact) -> None:
    bucket.scratch.mkdir()
    gcs.faults += [Fault("upload", 3, "503"), Fault("upload", 6, "lost"), Fault("list", 4, "429"), Fault("read", 9, "torn")]
    made = build(bucket, lengths(), fan_out=RUNNERS).artifact
    assert not gcs.faults, "every one was met"
    assert made.data_version == whole.data_version
    made.verify()
    assert resolve(bucket, lengths()).spec == made.spec
    assert not bucket.storage.sizes(SHARED_FOLDER)
