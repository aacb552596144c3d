"""Storage: the same guarantees on a local folder, in a bucket and on any fsspec URL."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.storage.root import Storage
from lineage.writing.write import writing

THREADS = 8
SPEC = ArtifactSpec(("a",), None, "tests.plain", "1", {})


@pytest.fixture(params=["local", "memory", "gs", "gs, below a folder"])
def storage(request, tmp_path: Path) -> Storage:
    if request.param.startswith("gs"):
        root = request.getfixturevalue("gcs").bucket(uuid.uuid4().hex)
        return Storage(f"{root}/some/lab" if "folder" in request.param else root)
    return Storage(str(tmp_path / "root") if request.param == "local" else f"memory://{tmp_path.name}")


def filled(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_create_never_replaces(storage: Storage) -> None:
    assert storage.read_text("a/x.txt") is None
    assert storage.create("a/x.txt", "first é\n")
    assert not storage.create("a/x.txt", "second")
    assert storage.read_text("a/x.txt") == "first é\n"


@pytest.mark.parametrize("where", ["local", "gs"])
def test_of_many_creators_one_wins_and_its_text_is_whole(request, tmp_path: Path, where: str) -> None:
    root = str(tmp_path) if where == "local" else request.getfixturevalue("gcs").bucket(uuid.uuid4().hex)
    storage, together = Storage(root), Barrier(THREADS)

    def attempt(number: int) -> bool:
        together.wait()
        return storage.create("a/x.txt", str(number) * 100_000)

    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(attempt, range(THREADS)))
    assert won.count(True) == 1
    assert storage.read_text("a/x.txt") == str(won.index(True)) * 100_000
    assert list(storage.sizes("a")) == ["x.txt"], "no scratch file stays"


@pytest.mark.parametrize("where", ["local", "gs"])
def test_of_many_swaps_of_one_generation_one_wins(request, tmp_path: Path, where: str) -> None:
    root = str(tmp_path) if where == "local" else request.getfixturevalue("gcs").bucket(uuid.uuid4().hex)
    files, together = Storage(root).files, Barrier(THREADS)
    files.create("a/lease", b"first")
    before = files.read_versioned("a/lease")
    assert before is not None
    assert before.data == b"first"

    def attempt(number: int) -> str | None:
        together.wait()
        return files.swap("a/lease", str(number).encode(), before.generation)

    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(attempt, range(THREADS)))
    winner = next(number for number, generation in enumerate(won) if generation is not None)
    assert won.count(None) == THREADS - 1
    after = files.read_versioned("a/lease")
    assert after == (str(winner).encode(), won[winner])
    assert files.swap("a/lease", None, before.generation) is None, "a stale generation deletes nothing"
    assert files.swap("a/lease", None, after.generation) == ""
    assert files.read_versioned("a/lease") is None
    assert files.swap("a/lease", b"again", after.generation) is None, "what is gone is not replaced"


def test_ranges_are_read_of_any_root(storage: Storage) -> None:
    storage.replace("a/x.bin", bytes(range(100)))
    assert storage.files.read_range("a/x.bin", 10, 20) == bytes(range(10, 20))
    assert storage.files.read_range("a/x.bin", 90, 100) == bytes(range(90, 100))
    assert storage.files.read_range("a/x.bin", 5, 5) == b""
    with pytest.raises(FileNotFoundError):
        storage.files.read_range("a/none.bin", 0, 1)


def test_what_is_published_is_found_fetched_and_deleted(storage: Storage, tmp_path: Path) -> None:
    storage.publish(filled(tmp_path / "made", one="1", sub__two="22"), "k/v/data-1")
    assert (tmp_path / "made").exists() != storage.is_local, "a writer that dies before its manifest still has what it copied"
    storage.create("k/v/manifest.json", "{}")
    storage.create("other/manifest.json", "{}")
    assert list(storage.find("k", "manifest.json")) == ["k/v/manifest.json"]
    assert list(storage.find("", "manifest.json")) == ["k/v/manifest.json", "other/manifest.json"]
    assert list(storage.find("nothing", "manifest.json")) == []
    assert storage.folders("k/v") == ["data-1"]
    assert storage.folders("nothing") == []
    target = tmp_path / "fetched" / "data-1"
    storage.fetch("k/v/data-1", ["one", "sub/two"], target)
    assert ((target / "one").read_text(), (target / "sub" / "two").read_text()) == ("1", "22")
    storage.delete("k")
    storage.delete("k")
    assert list(storage.find("", "manifest.json")) == ["other/manifest.json"]


def test_a_fetch_that_fails_leaves_nothing_that_looks_whole(storage: Storage, tmp_path: Path) -> None:
    storage.publish(filled(tmp_path / "made", one="1"), "k/v/data-1")
    target = tmp_path / "fetched" / "data-1"
    with pytest.raises(FileNotFoundError):
        storage.fetch("k/v/data-1", ["one", "gone"], target)
    assert not target.exists()
    storage.fetch("k/v/data-1", ["one"], target)
    assert (target / "one").read_text() == "1"


def test_folders_of_work_are_no_artifacts(tmp_path: Path) -> None:
    filled(tmp_path, **{".work__a__manifest.json": "{}"})
    assert list(Storage(str(tmp_path)).find("", "manifest.json")) == []


def test_two_may_delete_the_same_folder_at_the_same_time(tmp_path: Path) -> None:
    storage, together = Storage(str(tmp_path)), Barrier(THREADS)
    filled(tmp_path, **{f"k__{i % 20}__{i}": "x" for i in range(400)})

    def delete(_: int) -> None:
        together.wait()
        storage.delete("k")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(delete, range(THREADS)))
    assert not (tmp_path / "k").exists()


def test_a_local_path_of_a_remote_root_is_refused() -> None:
    with pytest.raises(ValueError, match="memory://x is not a local folder; fetch 'a/b' first"):
        Storage("memory://x").local("a/b")


def test_a_remote_artifact_is_fetched_once_and_its_bytes_are_checked(tmp_path: Path) -> None:
    store = Store(f"memory://{tmp_path.name}", scratch_folder=str(tmp_path / "scratch"))
    with writing(store, SPEC) as out:
        filled(out.folder, sub__x="text")
    folder = out.artifact.folder()
    assert folder == out.artifact.folder()
    out.artifact.verify()
    assert [path.read_text() for path in out.artifact.files()] == ["text"]
    (folder / "sub" / "x").write_text("tampered")
    with pytest.raises(ValueError, match="file sub/x has digest"):
        out.artifact.verify()


def test_a_second_writer_of_a_remote_identity_is_discarded(tmp_path: Path) -> None:
    store = Store(f"memory://{tmp_path.name}", scratch_folder=str(tmp_path / "scratch"))
    with writing(store, SPEC) as first:
        filled(first.folder, x="first")
        with writing(store, SPEC) as second:
            filled(second.folder, x="second")
    assert first.artifact.data_version == second.artifact.data_version
    assert store.storage.folders(SPEC.address) == [second.artifact.manifest.data_folder, "signatures"]
    assert list((tmp_path / "scratch" / "writing").iterdir()) == [], "neither working folder stays"


def test_replace_writes_over_and_reads_back(storage: Storage) -> None:
    assert storage.read_bytes("t/x.bin") is None
    for data in (b"first", b"", b"second, longer"):
        storage.replace("t/x.bin", data)
        assert storage.read_bytes("t/x.bin") == data


def test_files_that_are_being_written_are_no_records(tmp_path: Path) -> None:
    """A writer that was killed leaves them beside the records, empty or in half."""
    storage = Store(str(tmp_path)).storage
    assert storage.records("pins") == []
    for name in ("b.json", "a.json", "deeper/c.json"):
        storage.replace(f"pins/{name}", b"{}")
    (tmp_path / "pins" / ".a.json.0badf00d").write_text("")
    assert storage.records("pins") == ["a.json", "b.json"]


def test_stamps_name_every_file_and_change_with_its_bytes(storage: Storage) -> None:
    assert storage.stamps("m.json") == {}
    for address in ("a/1/m.json", "a/2/m.json", "b/m.json", "b.json", ".work/w/m.json"):
        assert storage.create(address, "x")
    before = storage.stamps("m.json")
    assert list(before) == list(storage.find("", "m.json")) == ["a/1/m.json", "a/2/m.json", "b/m.json"]
    assert storage.stamps("m.json") == before
    storage.replace("a/2/m.json", b"y")
    storage.delete("b/m.json")
    after = storage.stamps("m.json")
    assert after.keys() == {"a/1/m.json", "a/2/m.json"}
    assert after["a/1/m.json"] == before["a/1/m.json"]
    assert after["a/2/m.json"] != before["a/2/m.json"]
