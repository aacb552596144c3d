"""The store: atomic commits, resume after a kill, one winner, faults that leave nothing behind."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.build.nodes import MissingArtifactError, Node, ancestors_first, resolve
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.shards.run import SHARD_FOLDER
from lineage.stage import Stage
from lineage.writing.write import writing
from lineage.writing.writer import Writer

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Words:
    """Config of the test stages; `log` is where shards say that they ran, and no identity."""

    words: tuple[str, ...]
    log: str = field(default="", metadata={"identity": False})


def write_word(folder: Path, word: str, log: str) -> Mapping[str, int]:
    if log:
        with Path(log).open("a") as stream:
            stream.write(f"{word}\n")
        if word == "die" and not Path(f"{log}.died").exists():
            Path(f"{log}.died").touch()
            (folder / "half.txt").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"{word}.txt").write_text(word * 1000)
    return {"letters": len(word)}


def write_words(out: Writer, config: Words) -> None:
    done = out.map_shards(write_word, {word: (word, config.log) for word in config.words})
    out.record(rows_in=len(done), rows_out=len(done), letters=sum(d["letters"] for d in done.values()))


def count_letters(out: Writer, config: Words, words: object) -> None:
    (out.folder / "count.txt").write_text("same whatever the words")


WORDS = Stage("tests.words", "1", write_words)
COUNT = Stage("tests.count", "1", count_letters)
SPEC = ArtifactSpec(("a", "b"), "p", "tests.plain", "1", {"n": 1})


def words_node(*words: str, log: str = "") -> Node:
    return Node(("tests", "words"), None, WORDS, Words(words, log))


def run_child(code: str, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_killed_stage_resumes_at_the_shard_with_the_same_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("apple", "bear", "die", "zebra")
    code = (
        "import sys; from test_store import *; "
        "build(Store(sys.argv[1]), words_node('apple', 'bear', 'die', 'zebra', log=sys.argv[2]))"
    )
    killed = run_child(code, str(tmp_path / "killed"), str(log))
    assert killed.returncode == -signal.SIGKILL
    assert not list((tmp_path / "killed").rglob(MANIFEST_NAME))
    again = run_child(code, str(tmp_path / "killed"), str(log))
    assert again.returncode == 0, again.stderr
    assert log.read_text().split() == ["apple", "bear", "die", "die", "zebra"]
    resumed = resolve(Store(str(tmp_path / "killed")), words_node(*words, log=str(log)))
    undisturbed = build(Store(str(tmp_path / "whole")), words_node(*words)).artifact
    assert resumed.data_version == undisturbed.data_version
    assert {entry.path for entry in resumed.manifest.files} == {f"{word}.txt" for word in words}


def test_worker_counts_change_no_byte(tmp_path: Path) -> None:
    versions = {
        build(
            Store(str(tmp_path / str(workers))), words_node("one", "two", "three"), execution=Execution(workers)
        ).artifact.data_version
        for workers in (1, 2)
    }
    assert len(versions) == 1


def test_the_first_of_two_writers_wins_and_the_loser_discards(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with writing(store, SPEC) as first:
        (first.folder / "x.txt").write_text("first")
        with writing(store, SPEC) as second:
            (second.folder / "x.txt").write_text("second")
    assert second.artifact.data_version == first.artifact.data_version
    artifact = store.find(SPEC)
    assert artifact is not None
    assert artifact.files()[0].read_text() == "second"
    assert len(list((tmp_path / SPEC.address).glob("data-*"))) == 1


def test_an_exception_commits_nothing_and_changed_code_starts_from_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(OSError, match="broken"), writing(store, SPEC, code_fingerprint="old") as out:
        out.map_shards(write_word, {"kept": ("kept", "")})
        raise OSError("broken")
    assert store.find(SPEC) is None
    with writing(store, SPEC, code_fingerprint="new") as out:
        assert not list(out.folder.glob("*.txt"))
        assert not list((out.folder / SHARD_FOLDER).glob("*.json"))


def test_a_full_disk_leaves_nothing_visible(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from test_store import *; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        "build(Store(sys.argv[1]), words_node('small', 'enormousenormous'))"
    )
    assert resource.RLIMIT_FSIZE is not None
    failed = run_child(code, str(tmp_path))
    assert failed.returncode != 0
    assert "File too large" in failed.stderr
    assert not list(tmp_path.rglob(MANIFEST_NAME))
    assert build(Store(str(tmp_path)), words_node("small", "enormousenormous")).artifact.files()


def test_a_manifest_edited_by_hand_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = build(store, words_node("word")).artifact
    path = tmp_path / artifact.spec.address / MANIFEST_NAME
    record = json.loads(path.read_text())
    record["config"]["words"] = ["other"]
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="was edited"):
        store.open(artifact.spec.address)


def test_verify_names_the_file_that_changed(tmp_path: Path) -> None:
    artifact = build(Store(str(tmp_path)), words_node("word")).artifact
    artifact.verify()
    artifact.files()[0].write_text("x")
    with pytest.raises(ValueError, match=r"word\.txt"):
        artifact.verify()


@pytest.mark.parametrize("root", ["local", "memory://tests-store"])
def test_reuse_walks_and_deletion_on_any_root(tmp_path: Path, root: str) -> None:
    store = Store(str(tmp_path) if root == "local" else root, scratch_folder=str(tmp_path / "scratch"))
    words, count = words_node("a", "b"), Node(("count",), "p", COUNT, Words(()), {"words": words_node("a", "b")})
    for node in ancestors_first([count]):
        assert not build(store, node).reused
    made = build(store, count)
    assert made.reused
    assert [a.name for a in store.walk_up(made.artifact)] == ["count[p]", "tests/words"]
    assert [a.name for a in store.walk_down(resolve(store, words))] == ["tests/words", "count[p]"]
    made.artifact.verify()
    store.delete(made.artifact)
    assert store.find(made.artifact.spec) is None


def test_recomputed_but_equal_bytes_leave_what_is_below_fresh(tmp_path: Path) -> None:
    """Early cutoff: the counts of other words have the same bytes, so what is made of them is found, not made."""
    store = Store(str(tmp_path))

    def chain(*words: str) -> Node:
        counted = Node(("count",), None, COUNT, Words(()), {"words": words_node(*words)})
        return Node(("top",), None, COUNT, Words(()), {"words": counted})

    build_all(store, [chain("a", "b")])
    remade = {node.name: build(store, node).reused for node in ancestors_first([chain("c")])}
    assert remade == {"tests/words": False, "count": False, "top": True}


def test_a_changed_config_makes_the_node_missing_by_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    build(store, words_node("a"))
    with pytest.raises(MissingArtifactError, match="tests/words is stale"):
        resolve(store, words_node("b"))


def test_a_parent_with_other_bytes_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    count = Node(("count",), None, COUNT, Words(()), {"words": words_node("a")})
    for node in ancestors_first([count]):
        artifact = build(store, node).artifact
    store.delete(store.parents(artifact)[0])
    with pytest.raises(ValueError, match="which is gone"):
        store.parents(artifact)


def make_folders(out: Writer, config: Words) -> None:
    (out.folder / ".scratch" / "index").mkdir(parents=True)
    (out.folder / "found" / "empty").mkdir(parents=True)
    if not Path(config.log).exists():
        Path(config.log).touch()
        raise OSError("the machine went away")
    (out.folder / "found" / "a.txt").write_text("a")


def test_folders_of_a_dead_attempt_are_gone_too(tmp_path: Path) -> None:
    """Found by killing the contamination stage while it saved its index (2026-11-21)."""
    node = Node(("tests", "folders"), None, Stage("tests.folders", "1", make_folders), Words((), str(tmp_path / "log")))
    store = Store(str(tmp_path / "store"))
    with pytest.raises(OSError, match="went away"):
        build(store, node)
    assert [path.name for path in build(store, node).artifact.files()] == ["a.txt"]


def test_a_manifest_names_the_commit_that_the_environment_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest says who wrote it. Identity and data version do not depend on it."""
    made = {}
    for commit in ("", "c0ffee"):
        monkeypatch.setenv("MARIN_GIT_SHA", commit)
        store = Store(str(tmp_path / f"of{commit}"))
        with writing(store, ArtifactSpec(("a",), None, "stage", "1", {}, ())) as out:
            (out.folder / "text").write_text("words")
        assert out.committed is not None
        made[commit] = out.committed
    assert made["c0ffee"].manifest.packages["marin-lab"] == "c0ffee"
    assert "marin-lab" not in made[""].manifest.packages
    assert made["c0ffee"].data_version == made[""].data_version
