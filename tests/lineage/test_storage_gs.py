"""Buckets: nothing lost or half committed, whatever the server answers and wherever a writer dies.

The client and the HTTP are real; the server is `tests/lab/gcs_server.py`, held to the rules of Google's API first.
"""

import logging
import multiprocessing
import os
import shutil
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from gcs_conformance import rules
from gcs_server import Fault, GcsServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples

from lineage.artifact.file_entries import file_entry
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.storage.gs import BucketFiles
from lineage.trust.gate import inspect
from lineage.writing.write import writing

SPEC = ArtifactSpec(("tests", "written"), None, "tests.plain", "1", {})
FILES = {"one.bin": b"1" * 1000, "two.bin": b"2" * 70_000, "sub/three.bin": b""}
MANY_FILES = 40

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def fresh_store(server: GcsServer, scratch: Path) -> Store:
    return Store(server.bucket(uuid.uuid4().hex), scratch_folder=str(scratch / uuid.uuid4().hex))


def write(store: Store, spec: ArtifactSpec = SPEC) -> Artifact:
    with writing(store, spec) as out:
        for name, data in FILES.items():
            (out.folder / name).parent.mkdir(exist_ok=True)
            (out.folder / name).write_bytes(data)
    return out.artifact


def assert_whole(store: Store, spec: ArtifactSpec = SPEC) -> Artifact:
    """Check that there is one artifact, that its bytes are those that were written, and that no other data is beside it."""
    artifact = Store(store.root, scratch_folder=f"{store.scratch_folder}-reader").find(spec)
    assert artifact is not None
    artifact.verify()
    assert {entry.path for entry in artifact.manifest.files} == FILES.keys()
    assert store.storage.folders(spec.address) == [artifact.manifest.data_folder, "signatures"]
    return artifact


def test_the_server_keeps_the_rules_of_the_real_one(server: GcsServer) -> None:
    assert [rule for rule in rules(server.url) if not rule.is_kept] == []


faults = st.lists(
    st.builds(Fault, st.just("any"), st.integers(1, 14), st.sampled_from(["429", "503", "lost", "torn"])),
    max_size=4,
    unique_by=lambda fault: fault.number,
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(faults)
def test_whatever_the_server_does_an_artifact_is_whole(server: GcsServer, tmp_path: Path, faults: list[Fault]) -> None:
    store = fresh_store(server, tmp_path)
    server.counts.clear()
    server.faults[:] = faults
    write(store)
    assert_whole(store)


def test_a_commit_whose_answer_was_lost_is_ours(server: GcsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The request is sent again and refused, because our own manifest is there: its data must not be deleted."""
    store = fresh_store(server, tmp_path)
    server.faults.append(Fault("upload", len(FILES) + 3, "lost"))
    made = write(store)
    assert server.counts["upload"] == len(FILES) + 4  # signature, log entry, manifest, manifest again
    assert assert_whole(store).manifest.data_folder == made.manifest.data_folder
    assert "another writer" not in caplog.text


def test_of_two_writers_the_first_wins_and_the_other_leaves_nothing(
    server: GcsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [fresh_store(server, tmp_path)]
    stores.append(Store(stores[0].root, scratch_folder=str(tmp_path / "another machine")))
    together = Barrier(2)

    def attempt(store: Store) -> Artifact:
        with writing(store, SPEC) as out:
            for name, data in FILES.items():
                (out.folder / name).parent.mkdir(exist_ok=True)
                (out.folder / name).write_bytes(data)
            together.wait()
        return out.artifact

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(attempt, stores)
    assert first.manifest.data_folder == second.manifest.data_folder == assert_whole(stores[0]).manifest.data_folder
    assert "another writer committed first" in caplog.text


def test_a_torn_answer_of_a_missing_object_is_asked_for_again(server: GcsServer, tmp_path: Path) -> None:
    """The client's own retries do not cover the body of a 404."""
    files = BucketFiles(fresh_store(server, tmp_path).root)
    server.faults.append(Fault("read", server.counts["read"] + 1, "torn"))
    assert files.read("no/such/object") is None


def test_a_server_that_stays_down_fails_the_stage_and_commits_nothing(server: GcsServer, tmp_path: Path) -> None:
    store = fresh_store(server, tmp_path)
    impatient = BucketFiles(store.root, retry_seconds=0.3)
    made = tmp_path / "made"
    made.mkdir()
    (made / "a").write_bytes(b"a")
    server.faults[:] = [Fault("any", number, "503") for number in range(1, 100)]
    with pytest.raises(Exception, match=r"Timeout of 0\.3s exceeded"):
        impatient.publish(made, "k/data-1")
    assert (made / "a").exists(), "what was not uploaded is kept"
    server.faults.clear()
    assert store.find(SPEC) is None
    write(store)
    assert_whole(store)


@pytest.mark.parametrize(
    ("operation", "number", "kind"),
    [
        ("chunk", 2, "torn"),
        ("chunk", 10, "lost"),
        ("chunk", 3, "hang"),
        ("chunk", 2, "410"),
        ("upload", 1, "503"),
        ("read", 1, "torn"),
    ],
)
def test_a_big_file_survives_cut_connections(server: GcsServer, tmp_path: Path, operation: str, number: int, kind: str) -> None:
    """Resumable: only a forgotten session (410) sends again what has arrived."""
    patience = 5.0 if kind == "hang" else 60.0  # even on a machine that pauses for so long: only then is nothing counted
    files = BucketFiles(server.bucket(uuid.uuid4().hex), timeout_seconds=patience, chunk_bytes=1 << 20)
    data = os.urandom((9 << 20) + 5)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "big").write_bytes(data)
    server.faults.append(Fault(operation, number, kind))  # type: ignore[arg-type]
    files.publish(tmp_path / "folder", "k/data-1")
    files.download({"k/data-1/big": tmp_path / "read"})
    assert server.faults == [], "the fault was met"
    assert (tmp_path / "read").read_bytes() == data
    if kind == "hang":
        return
    assert server.counts["upload"] == (2 if kind in ("410", "503") else 1)
    assert server.counts["chunk"] <= (10 + 2 if kind == "410" else 10 + 1)


def test_a_download_that_fails_leaves_nothing_on_the_disk(server: GcsServer, tmp_path: Path) -> None:
    """A bucket's errors are not OSErrors: the partial artifact stayed, under a name that no code looks at again."""
    store = fresh_store(server, tmp_path)
    write(store)
    reader = Store(store.root, scratch_folder=str(tmp_path / "reader"))
    artifact = reader.find(SPEC)
    assert artifact is not None
    server.counts.clear()
    server.faults.append(Fault("read", 2, "410"))
    with pytest.raises(Exception, match="410 GET"):
        artifact.folder()
    assert list((reader.scratch / "fetched" / SPEC.version).iterdir()) == []
    assert_whole(reader)


def write_in_child(url: str, root: str, scratch: str) -> None:
    os.environ["STORAGE_EMULATOR_HOST"] = url
    write(Store(root, scratch_folder=scratch))


@pytest.mark.parametrize("number", range(1, len(FILES) + 6))
def test_a_writer_killed_at_any_request_leaves_all_or_nothing(server: GcsServer, tmp_path: Path, number: int) -> None:
    """SIGKILL while its n-th request is on the way: files, checksums, signature, log entry, manifest, the look for rests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lineage.artifact.store", "google.cloud.storage"])
    store = fresh_store(server, tmp_path)
    child = context.Process(target=write_in_child, args=(server.url, store.root, str(store.scratch_folder)))

    def kill() -> None:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        time.sleep(0.05)  # it must not live to read the answer

    server.faults.append(Fault("any", number, "call", action=kill))
    child.start()
    child.join()
    server.settle()
    assert child.exitcode == -signal.SIGKILL
    artifact = store.find(SPEC)
    assert (artifact is not None) == (number > len(FILES) + 3), "the manifest comes last"
    if artifact is None:
        write(store)
    assert_whole(store)


def test_a_folder_of_an_artifact_is_fetched_alone(server: GcsServer, tmp_path: Path) -> None:
    artifact = write(fresh_store(server, tmp_path))
    server.counts.clear()
    folder = artifact.below("sub")
    assert [path.name for path in folder.iterdir()] == ["three.bin"] and server.counts["read"] == 1
    assert not (folder.parent / "one.bin").exists()
    with pytest.raises(ValueError, match="has no file below su/; its manifest lists 3 others"):
        artifact.below("su")
    assert (artifact.folder() / "one.bin").exists() and artifact.below("sub") == artifact.folder() / "sub"


def test_what_operations_cost(server: GcsServer, tmp_path: Path) -> None:
    """Requests, which a bucket bills: none grows with the number of data files beside what is asked for."""
    store = fresh_store(server, tmp_path)
    many = ArtifactSpec(("many",), "p", "tests.plain", "1", {})
    with writing(store, many) as out:
        for number in range(MANY_FILES):
            (out.folder / f"part-{number:05d}").write_bytes(b"x")
    made = write(store, ArtifactSpec(("top",), None, "tests.plain", "1", {}, (out.artifact.ref("many"),)))

    def cost(action) -> dict[str, int]:
        server.counts.clear()
        action()
        return {name: n for name, n in sorted(server.counts.items()) if name != "any"}

    assert cost(lambda: store.find(many)) == {"read": 1}
    assert cost(lambda: store.latest(("many",), "p")) == {"list": 1, "read": 1}
    assert cost(lambda: store.storage.stamps("manifest.json")) == {"list": 1}
    assert cost(lambda: list(store.walk_up(made))) == {"read": 1}
    assert cost(lambda: made.input("many").folder()) == {"read": 1 + MANY_FILES}
    assert cost(lambda: made.input("many").folder()) == {"read": 1}, "fetched once"
    assert cost(lambda: write(store)) == {"list": 2, "upload": len(FILES) + 3}


def test_two_pages_of_a_listing_are_one_listing(server: GcsServer, tmp_path: Path) -> None:
    store = fresh_store(server, tmp_path)
    bucket = store.root.removeprefix("gs://")
    names = [f"k/{number:04d}/manifest.json" for number in range(1100)]
    for name in names:
        server.objects.put(bucket, name, b"{}", {})
        server.objects.put(bucket, f"{name}.old", b"{}", {})
    server.counts.clear()
    assert store.storage.find("k", "manifest.json") == names
    assert server.counts["list"] == 2, "names that are not asked for are not sent"
    assert len(store.storage.folders("k")) == len(names)


def test_files_that_are_in_the_bucket_already_are_committed_without_passing_through_the_writer(
    server: GcsServer, tmp_path: Path
) -> None:
    """As another process of a gang leaves its arrays: its bytes are copied by the bucket, whatever the bucket answers."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "part.bin").write_bytes(b"p" * 3_000_000)
    stores = [fresh_store(server, tmp_path), Store(str(tmp_path / "local"))]
    versions = []
    for store in stores:
        entry = file_entry(theirs, theirs / "part.bin")
        copied = tmp_path / uuid.uuid4().hex
        shutil.copytree(theirs, copied)
        store.storage.publish(copied, ".work/parts/1")
        server.bytes_read = 0
        server.faults.append(Fault("upload", server.counts["upload"] + 2, "503"))
        with writing(store, SPEC) as out:
            (out.folder / "one.bin").write_bytes(FILES["one.bin"])
            out.elsewhere[".work/parts/1/part.bin"] = entry
        assert server.bytes_read < 10_000
        assert {each.path for each in out.artifact.manifest.files} == {"one.bin", "part.bin"}
        out.artifact.verify()
        versions.append(out.artifact.data_version)
    assert versions[0] == versions[1]
    with pytest.raises(FileNotFoundError, match="there is no nothing"):
        stores[0].storage.copy({"nothing": "anywhere"})


def test_an_object_replaced_at_the_same_size_is_refused_at_the_gate(server: GcsServer, tmp_path: Path) -> None:
    """The manifest has the checksum that the bucket listed at the commit; no byte is downloaded to compare."""
    made = write(fresh_store(server, tmp_path))
    assert all(entry.crc32c for entry in made.manifest.files)
    assert inspect(made.store, [made.ref("x")], {}) == []
    where = f"{made.spec.address}/{made.manifest.data_folder}/one.bin"
    old = made.store.storage.read_bytes(where)
    assert old
    made.store.storage.replace(where, bytes([old[0] ^ 1]) + old[1:])
    before = server.bytes_read
    (finding,) = inspect(made.store, [made.ref("x")], {})
    assert finding.problem == "damaged" and "one.bin has checksum" in finding.detail
    assert server.bytes_read - before < 1 << 20
