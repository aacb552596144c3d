"""Lineage tables equal the manifests on any storage; every false entry is named."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from properties import examples
from random_lineage import Parents, dags, reached, write, write_dag
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.graph.check_tables import check_lineage
from lineage.graph.edges import (
    CHANGES,
    SCHEMAS,
    TABLES_FILE,
    LineageTables,
    lineage_tables,
    read_tables,
    rebuild_tables,
    save_tables,
)
from lineage.graph.table_file import packed
from lineage.graph.table_parts import read_parts
from lineage.graph.walk import LineageGraph, Rows
from lineage.storage.local import LocalFiles
from lineage.writing.write import writing


def a_store(factory: pytest.TempPathFactory, kind: str) -> Store:
    folder = factory.mktemp("store")
    if kind == "local":
        return Store(str(folder))
    return Store(f"memory://{folder.name}-{folder.parent.name}", scratch_folder=str(folder))


def slow_tables(store: Store) -> tuple[set[tuple], set[tuple]]:
    """(address, data version) of every manifest and (child, input, parent, version) of every input, one by one."""
    artifacts = list(store.artifacts())
    return (
        {(a.spec.address, a.data_version) for a in artifacts},
        {(a.spec.address, ref.name, ref.address, ref.data_version) for a in artifacts for ref in a.spec.inputs},
    )


def rows(tables: LineageTables) -> tuple[set[tuple], set[tuple]]:
    return (
        set(tables.artifacts.select("address", "data_version").iter_rows()),
        set(tables.edges.select("child", "input", "parent", "parent_data_version").iter_rows()),
    )


@given(dags(), st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=12), st.sampled_from(["local", "memory"]))
def test_tables_follow_commits_and_deletions(
    tmp_path_factory: pytest.TempPathFactory, parents: Parents, edits: list[tuple[bool, int]], kind: str
) -> None:
    """Deletions and second commits between queries: the tables brought up to date are those made from nothing."""
    store = a_store(tmp_path_factory, kind)
    made = write_dag(store, parents)
    assert rows(lineage_tables(store)) == slow_tables(store)
    for ask, number in edits:
        target = made[number % len(made)]
        if store.open(target.spec.address) is None:
            write(store, number % len(made), [made[i] for i in parents[number % len(made)]])
        else:
            store.delete(target)
        if ask:
            assert rows(lineage_tables(store)) == slow_tables(store)
    assert rows(lineage_tables(store)) == slow_tables(store)
    kept = read_tables(store)
    assert kept is not None
    again = rebuild_tables(store)
    assert_frame_equal(kept.artifacts, again.artifacts)
    assert_frame_equal(kept.edges, again.edges)


@given(dags(max_nodes=14), st.data())
def test_walks_are_those_of_following_every_pair(
    tmp_path_factory: pytest.TempPathFactory, parents: Parents, data: st.DataObject
) -> None:
    store = a_store(tmp_path_factory, "local")
    made = write_dag(store, parents)
    number = {artifact.spec.address: i for i, artifact in enumerate(made)}
    graph = LineageGraph(lineage_tables(store))
    start = data.draw(st.integers(0, len(made) - 1))
    address = made[start].spec.address
    for direction, walk in (("up", store.walk_up), ("down", store.walk_down)):
        walked = [number[a] for a in graph.walk(address, direction)]
        assert sorted(walked) == sorted(reached(parents, start, direction))
        assert sorted(walked) == sorted(number[a.spec.address] for a in walk(made[start]))
        assert walked[0] == start
    ordered = [number[a] for a in graph.oldest_first(graph.addresses)]
    assert sorted(ordered) == sorted(number.values())
    for position, node in enumerate(ordered):
        assert set(parents[node]) <= set(ordered[:position])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(0, 9))
def test_nearest_first_is_the_order_of_scipy(pairs: list[tuple[int, int]], start: int) -> None:
    """Pairs may be given twice (an input under two names) and may go in circles (a forged table)."""
    nodes, others = np.array(pairs, np.int64).reshape(-1, 2).T
    matrix = csr_array((np.ones(len(pairs)), (nodes, others)), shape=(10, 10))
    order = breadth_first_order(matrix, start, return_predecessors=False)
    assert Rows.of(nodes, others, 10).breadth_first(start) == order.tolist()


def test_a_manifest_is_opened_once(tmp_path: Path) -> None:
    """The second query trusts its listing: what it did not open again it cannot have read."""
    store = Store(str(tmp_path))
    (made,) = write_dag(store, [[]])
    before = lineage_tables(store)
    path = tmp_path / made.spec.address / MANIFEST_NAME
    stat = path.stat()
    path.write_text("x" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert_frame_equal(lineage_tables(store).artifacts, before.artifacts)


def test_many_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [list(range(n)) for n in range(7)])
    alone = lineage_tables(store, save=False)
    monkeypatch.setattr("lineage.graph.edges.CHUNK", 3)
    together = lineage_tables(store, save=False)
    assert together.artifacts.height == 7 and together.edges.height == 21
    assert_frame_equal(together.artifacts, alone.artifacts)
    assert_frame_equal(together.edges, alone.edges)


def test_any_changed_byte_of_the_file_is_named_and_the_tables_are_made_again(tmp_path: Path) -> None:
    """A forged Parquet footer ended the process in pyarrow (2026-11-25), so no such file is read."""
    store = Store(str(tmp_path))
    write_dag(store, [[], [0], [0, 1]])
    whole = lineage_tables(store)
    path = tmp_path / TABLES_FILE
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        assert read_tables(store) is None, f"byte {at}"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        assert read_tables(store) is None, f"cut after {end} bytes"
    assert_frame_equal(lineage_tables(store).artifacts, whole.artifacts)
    assert_frame_equal(lineage_tables(store).edges, whole.edges)


def parts_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / CHANGES).glob("[!.]*"))}


def test_news_is_saved_beside_the_tables_and_they_are_written_whole_once_they_have_doubled(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[] for _ in range(32)])
    lineage_tables(store)
    path, written, wholes = tmp_path / TABLES_FILE, 0, 0
    for number in range(32):
        before, parts = path.read_bytes(), parts_of(tmp_path)
        write(store, 32 + number, [])
        assert rows(lineage_tables(store)) == slow_tables(store)
        after = parts_of(tmp_path)
        assert len(after) <= 5, "sizes double"
        if path.read_bytes() != before:
            wholes, written = wholes + 1, written + 32 + number
            assert not after
        else:
            sizes = {f"{part.number:08d}.arrays": part.size for part in read_parts(store.storage, CHANGES, SCHEMAS)}
            written += sum(size for name, size in sizes.items() if parts.get(name) != after[name])
    assert wholes <= 3 and written < 32 * 7, "rows that were written; whole tables each time are 32 x 48"


def test_a_kill_before_the_changes_are_deleted_leaves_the_tables_right(tmp_path: Path) -> None:
    """The old changes are applied to newer tables: one of them brings a row back that was deleted since."""
    store = Store(str(tmp_path))
    made = write_dag(store, [[] for _ in range(16)])
    lineage_tables(store)
    late = write(store, 16, made[:2])
    lineage_tables(store)
    left = parts_of(tmp_path)
    assert left
    store.delete(late)
    store.delete(made[0])
    save_tables(store, lineage_tables(store))
    assert parts_of(tmp_path) == {}
    (tmp_path / CHANGES).mkdir(exist_ok=True)
    for name, data in left.items():
        (tmp_path / CHANGES / name).write_bytes(data)
    assert rows(lineage_tables(store)) == slow_tables(store)


def test_a_change_that_another_writer_overwrote_is_news_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[] for _ in range(16)])
    lineage_tables(store)
    write(store, 16, [])
    lineage_tables(store)
    (one,) = parts_of(tmp_path).items()
    write(store, 17, [])
    lineage_tables(store)
    (tmp_path / CHANGES / one[0]).write_bytes(one[1])
    for name in parts_of(tmp_path).keys() - {one[0]}:
        (tmp_path / CHANGES / name).unlink()
    assert rows(lineage_tables(store)) == slow_tables(store)


@pytest.mark.parametrize("data", [b"", b"x", packed({"other": pl.DataFrame({"address": ["x"]})})])
def test_a_forged_file_of_changes_is_named_and_the_tables_are_made_again(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[] for _ in range(8)])
    lineage_tables(store)
    write(store, 8, [])
    lineage_tables(store)
    (name,) = parts_of(tmp_path)
    (tmp_path / CHANGES / name).write_bytes(data)
    assert rows(lineage_tables(store)) == slow_tables(store)
    assert name in caplog.text and parts_of(tmp_path) == {}


# --- the consistency check ---------------------------------------------------------------------------------------------


@given(dags().filter(any), st.data())
@settings(max_examples=examples(20))
def test_every_missing_and_every_forged_edge_is_named(
    tmp_path_factory: pytest.TempPathFactory, parents: Parents, data: st.DataObject
) -> None:
    store = a_store(tmp_path_factory, "local")
    made = write_dag(store, parents)
    tables = lineage_tables(store)
    assert check_lineage(store) == []
    pairs = tables.edges.select("child", "input", "parent").rows()
    dropped = data.draw(st.sets(st.sampled_from(pairs)))
    child, parent = data.draw(st.sampled_from(made)), data.draw(st.sampled_from(made))
    lie = (child.spec.address, "inputs.9", parent.spec.address)
    edges = tables.edges.filter([row not in dropped for row in pairs])
    extra = {"parent_data_version": parent.data_version, "child_name": child.name, "child_stage": "", "parent_name": ""}
    row = dict(zip(("child", "input", "parent"), lie, strict=True)) | extra
    save_tables(store, LineageTables(tables.artifacts, pl.concat([edges, pl.DataFrame([row], schema=edges.schema)])))
    disagreements = {(f.kind, f.artifact, f.input, f.parent) for f in check_lineage(store)}
    assert disagreements == {("missing_edge", *row) for row in dropped} | {("forged_edge", *lie)}
    rebuild_tables(store)
    assert check_lineage(store) == []


def kinds(store: Store) -> set[tuple[str, str]]:
    return {(finding.kind, finding.artifact.rsplit("/", 2)[0]) for finding in check_lineage(store)}


def edit(store: Store, address: str, **changes: object) -> None:
    path = Path(store.root) / address / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_forged_row_of_the_artifacts_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[], [0]])
    tables = lineage_tables(store)
    lie = pl.when(pl.col("name") == "tests/n1").then(pl.lit("0" * 32)).otherwise("data_version")
    save_tables(store, LineageTables(tables.artifacts.with_columns(data_version=lie), tables.edges))
    assert kinds(store) == {("forged_artifact", "tests/n1")}


def test_what_came_and_went_since_the_tables_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write_dag(store, [[], []])
    lineage_tables(store)
    write(store, 2, [])
    store.delete(made[0])
    assert kinds(store) == {("missing_artifact", "tests/n2"), ("forged_artifact", "tests/n0")}


def test_manifests_that_disagree_with_each_other_are_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write_dag(store, [[], [], [0], [1]])
    store.delete(made[0])
    files = [{"path": "number.txt", "bytes": 1, "rows": None, "digest": "0" * 32}]
    edit(store, made[1].spec.address, files=files)  # its data version no longer matches its files
    assert kinds(store) == {("lost_input", "tests/n2"), ("edited", "tests/n1"), ("lost_input", "tests/n3")}


def test_an_input_that_was_made_again_with_other_bytes_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write_dag(store, [[], [0]])
    store.delete(made[0])
    with writing(store, made[0].spec) as out:
        (out.folder / "number.txt").write_text("other bytes")
    assert kinds(store) == {("swapped_input", "tests/n1")}


def test_a_manifest_edited_into_another_identity_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write_dag(store, [[], [0]])
    edit(store, made[1].spec.address, config={"number": 7})
    assert kinds(store) == {("edited", "tests/n1")}
    with pytest.raises(ValueError, match="was edited"):
        lineage_tables(store)


def test_a_folder_that_was_moved_by_hand_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    (made,) = write_dag(store, [[]])
    moved = tmp_path / made.spec.address.replace("n0", "n9")
    moved.parent.mkdir(parents=True)
    (tmp_path / made.spec.address).rename(moved)
    assert kinds(store) == {("moved", "tests/n9")}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_root_that_cannot_be_written_is_asked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """A read-only mount answers EROFS, which is not a PermissionError (red team, L-D7). Mounting one needs root."""
    store = Store(str(tmp_path))
    with writing(store, ArtifactSpec(("a",), None, "tests.plain", "1", {})) as out:
        (out.folder / "text").write_text("x")

    def refuse(files: LocalFiles, name: str, data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(LocalFiles, "replace", refuse)
    assert lineage_tables(store).artifacts["address"].to_list() == [out.artifact.spec.address]
    assert "cannot be saved" in caplog.text


def test_files_that_are_gone_or_have_another_size_are_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    whole, cut, gone = write_dag(store, [[], [], []])
    assert check_lineage(store) == []
    cut.files()[0].write_text("longer than it was")
    gone.files()[0].unlink()
    findings = check_lineage(store)
    assert [(finding.kind, finding.artifact) for finding in findings] == sorted(
        ("damaged", artifact.spec.address) for artifact in (cut, gone)
    )
    assert whole.spec.address not in {finding.artifact for finding in findings}
