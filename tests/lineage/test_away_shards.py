"""Shards that runners wrote stay in the bucket: the commit copies them there, and a runner fetches what its tasks name."""

import multiprocessing
import os
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import Fault, GcsServer
from lazy_stage import NAMES, PAGE_BYTES, PAGES, REVISED, job_of, pages

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, spec_of
from lineage.build.plan import build
from lineage.build.shard_runner import Share, ShareDone, run_share
from lineage.shards.away import named_paths
from lineage.shards.shared import SHARED_FOLDER

SMALL = PAGE_BYTES // 2
"""More than all records, notes, lists and the manifest; less than one page."""
RUNNERS = 3

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def bucket(server: GcsServer, tmp_path: Path) -> Store:
    return Store(server.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "committing"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """What one process makes on a local root."""
    return build(Store(str(tmp_path_factory.mktemp("whole"))), pages()).artifact


def run_one(store: Store, node: Node, index: int) -> ShareDone | None:
    """One runner, on a machine of its own."""
    machine = replace(store, scratch_folder=f"{store.scratch}-{uuid.uuid4().hex}")
    return run_share(node.stage, node.config, job_of(machine, node), Share(index, RUNNERS))


def run_maps(store: Store, node: Node, maps: int = 2) -> None:
    for _ in range(maps):
        for index in range(RUNNERS):
            run_one(store, node, index)


def fetched_by(server: GcsServer, action) -> int:
    before = server.bytes_read
    action()
    return server.bytes_read - before


def test_the_commit_fetches_no_page_and_makes_the_bytes_of_one_process(
    bucket: Store, server: GcsServer, whole: Artifact
) -> None:
    run_maps(bucket, pages())
    assert fetched_by(server, lambda: build(bucket, pages())) < SMALL
    made = bucket.find(spec_of(bucket, pages()))
    assert made is not None and not (bucket.scratch / "log").exists(), "no shard is made again"
    assert made.data_version == whole.data_version
    assert made.manifest.statistics == whole.manifest.statistics
    assert made.manifest.shards == whole.manifest.shards
    assert all(entry.crc32c for entry in made.manifest.files)
    made.verify()
    assert [path.read_bytes() for path in made.files(".txt")] == [path.read_bytes() for path in whole.files(".txt")]
    assert not bucket.storage.sizes(SHARED_FOLDER), "what was shared goes at the commit"


def test_a_runner_fetches_the_pages_that_its_tasks_name(bucket: Store, server: GcsServer) -> None:
    run_maps(bucket, pages(), 1)
    own = len(NAMES) // RUNNERS * PAGE_BYTES
    for index in range(RUNNERS):
        assert own <= fetched_by(server, lambda at=index: run_one(bucket, pages(), at)) < own + SMALL
    done = run_one(bucket, pages(), 0)
    assert done is None, "every shard is finished"


def test_what_the_committing_process_makes_itself_is_fetched_for_it_alone(bucket: Store, server: GcsServer) -> None:
    run_maps(bucket, pages(), 1)
    run_one(bucket, pages(), 0)
    run_one(bucket, pages(), 2)
    own = len(NAMES) // RUNNERS * PAGE_BYTES
    assert own <= fetched_by(server, lambda: build(bucket, pages())) < own + SMALL
    assert (bucket.scratch / "log").read_text().split() == ["B", "E"]


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("stage", [PAGES, REVISED])
def test_a_stage_that_reads_and_changes_its_shards_gets_the_same_bytes(
    bucket: Store, tmp_path: Path, stage, remote: bool
) -> None:
    node, store = pages(stage, lazy=False), bucket if remote else Store(str(tmp_path / "local"))
    expected = build(Store(str(tmp_path / "whole")), node).artifact
    run_maps(store, node)
    made = build(store, node).artifact
    assert made.data_version == expected.data_version and made.manifest.shards == expected.manifest.shards
    made.verify()


def test_a_changed_page_is_refused_by_the_commit_and_by_a_runner_that_reads_it(bucket: Store, whole: Artifact) -> None:
    """Of the same size, so that only its bytes differ. What the error says mends it."""
    run_maps(bucket, pages(), 1)
    (address,) = (a for a in bucket.storage.sizes(SHARED_FOLDER) if a.endswith("pages/b.txt"))
    honest = f"{SHARED_FOLDER}/{address}"
    data = bucket.storage.read_bytes(honest)
    assert data is not None
    bucket.storage.replace(honest, b"x" + data[1:])
    with pytest.raises(ValueError, match=r"pages/b\.txt has digest .*; its runner wrote 50000 bytes"):
        run_one(bucket, pages(), 1)
    bucket.storage.replace(honest, data)
    run_maps(bucket, pages(), 1)
    bucket.storage.replace(honest, b"x" + data[1:])
    with pytest.raises(ValueError, match=r"pages/b\.txt has 50000 bytes, checksum .* Delete gs://.*/page-b and") as refused:
        build(bucket, pages())
    assert bucket.find(spec_of(bucket, pages())) is None
    shard = str(refused.value).split("Delete ")[1].split(" and ")[0]
    bucket.storage.delete(shard.removeprefix(f"{bucket.root}/"))
    made = build(bucket, pages()).artifact
    assert (bucket.scratch / "log").read_text().split() == ["b"]
    assert made.data_version == whole.data_version
    made.verify()
    assert bucket.storage.folders(made.spec.address) == [made.manifest.data_folder, "signatures"], "the refused copy is gone"


def test_a_local_root_refuses_a_changed_page(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    run_maps(store, pages())
    (page,) = (tmp_path / "root" / SHARED_FOLDER).rglob("pages/b.txt")
    page.write_text("x" + page.read_text()[1:])
    with pytest.raises(ValueError, match=r"pages/b\.txt has digest"):
        build(store, pages())


def test_a_writer_whose_shards_another_has_committed_takes_that_artifact(bucket: Store) -> None:
    """The winner deletes what was shared, while the loser is about to copy it."""
    run_maps(bucket, pages())
    other = replace(bucket, scratch_folder=f"{bucket.scratch}-other")
    won: list[Artifact] = []

    def write_late(out, config) -> None:
        assert PAGES.run is not None
        PAGES.run(out, config)
        won.append(build(other, pages()).artifact)

    job = job_of(bucket, pages())
    with job.writing(job.spec) as out:
        write_late(out, pages().config)
    assert out.artifact.manifest.data_folder == won[0].manifest.data_folder
    out.artifact.verify()


def build_in_child(url: str, root: str, scratch: str) -> None:
    os.environ["STORAGE_EMULATOR_HOST"] = url
    build(Store(root, scratch_folder=scratch), pages())


@pytest.mark.parametrize(("operation", "number"), [("upload", 1), ("upload", 9), ("upload", 16), ("delete", 1)])
def test_a_commit_killed_at_a_request_loses_no_shard(
    bucket: Store, server: GcsServer, whole: Artifact, operation: str, number: int
) -> None:
    """At the stage's own file, among the 12 copies, at the manifest, and while what was shared is deleted."""
    run_maps(bucket, pages())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lineage.build.plan", "google.cloud.storage"])
    child = context.Process(target=build_in_child, args=(server.url, bucket.root, str(bucket.scratch)))

    def kill() -> None:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        time.sleep(0.05)  # it must not live to read the answer

    server.counts.clear()
    server.faults.append(Fault(operation, number, "call", action=kill))  # type: ignore[arg-type]
    child.start()
    child.join()
    server.settle()
    assert child.exitcode == -signal.SIGKILL
    made = build(bucket, pages()).artifact
    assert not (bucket.scratch / "log").exists(), "no shard is made again"
    assert made.data_version == whole.data_version
    made.verify()
    assert bucket.storage.folders(made.spec.address) == [made.manifest.data_folder, "signatures"]


def test_paths_are_found_at_any_depth_of_a_task(tmp_path: Path) -> None:
    page = tmp_path / "pages" / "a"
    task = (1, [{"key": (page,)}], str(tmp_path / "text"), Path("/elsewhere"), f"{tmp_path}-beside", named_paths)
    assert named_paths(tmp_path, task) == {page, tmp_path / "text"}
