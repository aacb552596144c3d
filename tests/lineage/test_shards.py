"""Shards: finished ones survive a kill, unfinished ones leave nothing, workers and order change no byte."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

import lineage.artifact.file_entries
import lineage.writing.commit
from lineage.artifact.file_entries import file_entry
from lineage.artifact.manifest import MANIFEST_NAME, FileEntry
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.shards.execution import Execution
from lineage.shards.run import DIGESTED, PARTIAL_SUFFIX, SCRATCH_FOLDER, SHARD_FOLDER, ShardFolder, run_shards
from lineage.shards.worker_pool import WorkerPool
from lineage.storage.digests import DigestedFile, file_digest
from lineage.writing.write import writing

ROOT = Path(__file__).resolve().parents[2]
SPEC = ArtifactSpec(("tests", "shards"), None, "tests.shards", "1", {})
NAMES = ("a", "b", "c", "d", "e")
CODE = "a code fingerprint"


def write_shard(folder: Path, name: str, log: str, kill_at: str) -> Mapping[str, int]:
    """Two files a shard; the shard `kill_at` kills its own process, half written, unless it did so before."""
    with Path(log).open("a") as stream:
        stream.write(f"{name}\n")
    (folder / "first").mkdir()
    (folder / "first" / f"{name}.txt").write_text(name * 1000)
    died = Path(f"{log}.died")
    if name == kill_at and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "broken":
        raise RuntimeError("the shard is broken")
    (folder / f"{name}.bin").write_bytes(name.encode() * 77)
    return {"letters": len(name)}


def tasks_of(log: Path, names: tuple[str, ...] = NAMES, kill_at: str = "") -> dict[str, tuple[object, ...]]:
    return {name: (name, str(log), kill_at) for name in names}


def write(store: Store, log: Path, kill_at: str = "", code: str = CODE, workers: int = 1) -> Artifact:
    with writing(store, SPEC, code, execution=Execution(workers)) as out:
        out.map_shards(write_shard, tasks_of(log, kill_at=kill_at))
    return out.artifact


def run_child(root: Path, log: Path, kill_at: str, workers: int, sigterm: str = "SIG_DFL") -> subprocess.CompletedProcess[str]:
    code = (
        f"import signal, sys, pathlib, test_shards as t; signal.signal(signal.SIGTERM, signal.{sigterm}); "
        "t.write(t.Store(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], workers=int(sys.argv[4]))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    command = [sys.executable, "-c", code, str(root), str(log), kill_at, str(workers)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)


def contents(artifact: Artifact) -> dict[str, bytes]:
    folder = artifact.folder()
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_killed_process_redoes_only_what_it_had_not_finished(tmp_path: Path) -> None:
    log, store = tmp_path / "log", Store(str(tmp_path / "killed"))
    killed = run_child(tmp_path / "killed", log, "c", workers=1)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert log.read_text().split() == ["a", "b", "c"]
    assert store.find(SPEC) is None and not list(tmp_path.rglob(MANIFEST_NAME))

    resumed = write(store, log, kill_at="c")
    assert log.read_text().split() == ["a", "b", "c", "c", "d", "e"]
    undisturbed = write(Store(str(tmp_path / "whole")), tmp_path / "other-log")
    assert contents(resumed) == contents(undisturbed)
    assert len(contents(resumed)) == 2 * len(NAMES)
    assert resumed.data_version == undisturbed.data_version
    resumed.verify()


@pytest.mark.parametrize("sigterm", ["SIG_DFL", "SIG_IGN"])
def test_a_killed_worker_costs_one_attempt_of_its_shard(tmp_path: Path, sigterm: str) -> None:
    """Also under `nohup make ferry &`, whose workers ignore SIGTERM."""
    log, store = tmp_path / "log", Store(str(tmp_path / "killed"))
    ended = run_child(tmp_path / "killed", log, "c", 2, sigterm)
    assert ended.returncode == 0, ended.stderr
    assert sorted(log.read_text().split()) == sorted([*NAMES, "c"])
    made = store.find(SPEC)
    assert made is not None
    assert contents(made) == contents(write(Store(str(tmp_path / "whole")), tmp_path / "other-log"))


def write_scratch(folder: Path, name: str) -> dict[str, int]:
    for path in (folder / "data" / name, folder / SCRATCH_FOLDER / name):
        path.parent.mkdir()
        path.write_text(name)
    return {}


def test_a_scratch_file_is_kept_and_counted_but_not_digested(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path)
    folder.run("a", write_scratch, ("a",))
    assert sorted(folder.records(["a"])["a"][0]) == [f"{SCRATCH_FOLDER}/a", "data/a"]
    assert list(folder.written(["a"])) == ["data/a"]
    (tmp_path / SCRATCH_FOLDER / "a").unlink()
    assert folder.finished("a") is None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_commit_reads_no_file_again_that_a_shard_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    read: list[str] = []

    def noted(folder: Path, path: Path) -> FileEntry:
        read.append(path.relative_to(folder).as_posix())
        return file_entry(folder, path)

    monkeypatch.setattr(lineage.writing.commit, "file_entry", noted)
    with writing(Store(str(tmp_path / "root")), SPEC, CODE, execution=Execution(workers)) as out:
        out.map_shards(write_shard, tasks_of(tmp_path / "log"))
        (out.folder / "whole.txt").write_text("of all shards")
    assert read == ["whole.txt"]
    folder = out.artifact.folder()
    assert set(out.artifact.manifest.files) == {file_entry(folder, folder / path) for path in contents(out.artifact)}


def test_a_file_that_is_changed_after_its_shard_is_digested_as_it_is(tmp_path: Path) -> None:
    with writing(Store(str(tmp_path / "root")), SPEC, CODE) as out:
        out.map_shards(write_shard, tasks_of(tmp_path / "log"))
        changed = out.folder / "a.bin"
        stands = changed.stat().st_mtime_ns
        changed.write_bytes(b"z" * changed.stat().st_size)
        os.utime(changed, ns=(stands, stands + 1))  # a write in the same tick of the clock cannot be noticed
    out.artifact.verify()


def write_digested(folder: Path, change: str) -> dict[str, object]:
    """One file that is digested while it is written; then perhaps another process writes to it."""
    with closing(DigestedFile(folder / "a")) as file:
        file.write(b"what the ")
        file.write(memoryview(b"shard wrote"))
    digested = file.digested()
    if change == "other bytes":
        (folder / "a").write_bytes(b"as many other bytes.")
        os.utime(folder / "a", ns=(digested.mtime_ns, digested.mtime_ns + 1))
    elif change == "more bytes":
        with (folder / "a").open("ab") as file:
            file.write(b"!")
    return {"letters": 20, DIGESTED: {"a": digested}}


@pytest.mark.parametrize("change", ["", "other bytes", "more bytes"])
def test_a_file_that_was_digested_while_it_was_written_is_read_only_if_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    read: list[str] = []
    monkeypatch.setattr(lineage.artifact.file_entries, "file_digest", lambda path: read.append(path.name) or file_digest(path))
    with writing(Store(str(tmp_path / "root")), SPEC, CODE) as out:
        assert out.map_shards(write_digested, {"only": (change,)}) == {"only": {"letters": 20}}
    assert read == (["a"] if change else [])
    assert out.artifact.manifest.shards["only"].statistics == {"letters": 20}
    out.artifact.verify()


def test_no_digest_is_given_of_a_file_that_another_writer_fills(tmp_path: Path) -> None:
    file = DigestedFile(tmp_path / "a")
    file.write(b"mine")
    with pytest.raises(RuntimeError, match="closed: False"):
        file.digested()
    file.close()
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(RuntimeError, match=r"has 6 bytes and 4 were written to it"):
        file.digested()


def test_leftovers_of_other_code_are_not_reused(tmp_path: Path) -> None:
    log, store = tmp_path / "log", Store(str(tmp_path / "root"))
    with pytest.raises(KeyError), writing(store, SPEC, CODE) as out:
        out.map_shards(write_shard, tasks_of(log, ("a", "b")))
        raise KeyError("stopped")
    write(store, log, code="other code")
    assert log.read_text().split() == ["a", "b", *NAMES]


def test_one_and_two_workers_write_the_same_bytes(tmp_path: Path) -> None:
    one, two = (write(Store(str(tmp_path / str(n))), tmp_path / f"log{n}", workers=n) for n in (1, 2))
    assert one.data_version == two.data_version
    assert contents(one) == contents(two)


def test_statistics_come_in_name_order_and_from_earlier_attempts_too(tmp_path: Path) -> None:
    folder, log = ShardFolder(tmp_path / "work"), tmp_path / "log"
    run_shards(folder, write_shard, tasks_of(log, ("dd", "b")), workers=1, pool=WorkerPool(), title="t")
    outcome = run_shards(folder, write_shard, tasks_of(log, ("dd", "ccc", "b", "a")), workers=1, pool=WorkerPool(), title="t")
    assert list(outcome.finished.items()) == [(name, {"letters": len(name)}) for name in ("a", "b", "ccc", "dd")]
    assert log.read_text().split() == ["dd", "b", "ccc", "a"], "begun in the order in which they are asked for"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_that_raises_leaves_finished_ones_and_nothing_of_itself(tmp_path: Path, workers: int) -> None:
    folder, log = ShardFolder(tmp_path / "work"), tmp_path / "log"
    with WorkerPool() as pool:
        ran = run_shards(folder, write_shard, tasks_of(log, ("a", "broken", "c")), workers=workers, pool=pool, title="t")
    assert [failure.error for failure in ran.failures] == ["RuntimeError: the shard is broken"]
    assert ran.finished == {"a": {"letters": 1}, "c": {"letters": 1}}
    assert folder.finished("broken") is None
    assert not (folder.root / "first" / "broken.txt").exists()
    assert not list(folder.root.rglob(f"*{PARTIAL_SUFFIX}"))


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_finished_shard_that_lost_bytes_is_done_again(tmp_path: Path, damage: str) -> None:
    folder, log = ShardFolder(tmp_path / "work"), tmp_path / "log"
    run_shards(folder, write_shard, tasks_of(log, ("a", "b")), workers=1, pool=WorkerPool(), title="t")
    path = folder.root / "first" / "a.txt"
    digest = file_digest(path)
    if damage == "deleted":
        path.unlink()
    else:
        path.write_text("a")
    run_shards(folder, write_shard, tasks_of(log, ("a", "b")), workers=1, pool=WorkerPool(), title="t")
    assert log.read_text().split() == ["a", "b", "a"]
    assert file_digest(path) == digest


def test_files_that_no_finished_shard_names_are_dropped(tmp_path: Path) -> None:
    store, log = Store(str(tmp_path / "root")), tmp_path / "log"
    with pytest.raises(KeyError), writing(store, SPEC, CODE) as out:
        out.map_shards(write_shard, tasks_of(log, ("a",)))
        (out.folder / "half.txt").write_text("half")
        raise KeyError("killed")
    with writing(store, SPEC, CODE) as out:
        assert {p.name for p in out.folder.iterdir()} == {"first", "a.bin", SHARD_FOLDER}


def test_records_and_scratch_files_are_not_in_the_artifact(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    with writing(store, SPEC) as out:
        out.map_shards(write_shard, tasks_of(tmp_path / "log", ("a",)))
        (out.folder / SCRATCH_FOLDER).mkdir()
        (out.folder / SCRATCH_FOLDER / "words.tmp").write_text("x")
        assert json.loads((out.folder / SHARD_FOLDER / "a.json").read_text())["files"] == {"a.bin": 77, "first/a.txt": 1000}
    assert sorted(contents(out.artifact)) == ["a.bin", "first/a.txt"]
