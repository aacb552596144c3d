"""The commit log: its answers are those of every manifest, through kills, concurrent writers and compaction."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from random_lineage import Recomputes, dags, reached, recomputes, write, write_dag

from lineage.artifact.store import Artifact, Store
from lineage.commit_log import compact
from lineage.commit_log.entries import FOLDER as ENTRIES
from lineage.commit_log.keys import data_key, own_bytes
from lineage.commit_log.reader import CommitLog
from lineage.commit_log.segments import FOLDER as SEGMENTS
from lineage.graph.affected import affected_by
from lineage.graph.below import children_of, made_by, tables_below
from lineage.graph.check_tables import check_lineage, every_manifest
from lineage.graph.edges import lineage_tables
from lineage.graph.scan import make_log, open_log, rebuild_log, unlogged
from lineage.graph.walk import LineageGraph
from lineage.storage.local import LocalFiles
from lineage.storage.root import Storage
from marin_assets.cli.show_lineage import walk

WRITES = ("create", "replace", "publish", "delete")


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a few commits is folded and merged, a segment has several groups of rows, and they are read by ranges."""
    monkeypatch.setattr("lineage.graph.scan.FOLD_AT", 3)
    monkeypatch.setattr("lineage.commit_log.compact.FAN_OUT", 2)
    monkeypatch.setattr("lineage.commit_log.segments.GROUP_ROWS", 2)
    monkeypatch.setattr("lineage.commit_log.segments.TAIL_BYTES", 64)


def below(store: Store, artifact: Artifact) -> set[str]:
    graph = LineageGraph(tables_below(store, [artifact]))
    return set(graph.walk(artifact.spec.address, "down"))


@settings(max_examples=examples(8))
@given(recomputes(), st.data())
def test_affected_by_the_log_is_affected_by_every_manifest(graph: Recomputes, data: st.DataObject) -> None:
    """Nodes are made again with equal bytes, some are deleted, and the log is asked and compacted in between."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        made = graph.write(store)
        bad = data.draw(st.sampled_from(sorted(made)))
        for place in data.draw(st.sets(st.sampled_from(sorted(made)), max_size=3)) - {bad}:
            if data.draw(st.booleans()):
                open_log(store)
            store.delete(made.pop(place))
        address = made[bad].spec.address
        by_log = affected_by(tables_below(store, [made[bad]]), [address])
        assert by_log.rows.drop("stamp").equals(affected_by(lineage_tables(store), [address]).rows.drop("stamp"))
        assert set(by_log.addresses) == {made[place].spec.address for place in graph.below(bad[0], made)}


@settings(max_examples=examples(8))
@given(dags(), st.data())
def test_children_and_stages_are_those_of_every_manifest(parents: list[list[int]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        made: list[Artifact] = []
        for number, above in enumerate(parents):
            made.append(write(store, number, [made[i] for i in above]))
            if data.draw(st.booleans()):
                open_log(store)
        for number, artifact in enumerate(made):
            children = {made[child].spec.address for child, above in enumerate(parents) if number in above}
            assert [child.spec.address for child in children_of(artifact)] == sorted(children)
            assert below(store, artifact) == {made[i].spec.address for i in reached(parents, number, "down")}
        assert {a.spec.address for a in made_by(store, "tests.node", "1")} == {a.spec.address for a in made}
        assert made_by(store, "tests.node") == made_by(store, "tests.node", "1")
        assert made_by(store, "tests.node", "2") == made_by(store, "tests.nod") == []


def test_what_was_made_from_equal_bytes_is_a_child_at_any_address(tmp_path: Path) -> None:
    """a(v1) -> b, then a is made again with equal bytes: an audit of the first is one of the second, and `--down` shows b."""
    store = Store(str(tmp_path))
    first = write(store, 0, [], version=1)
    child = write(store, 1, [first])
    second = write(store, 0, [], version=2)
    assert second.data_version == first.data_version and second.spec.address != first.spec.address
    assert [each.spec for each in children_of(second)] == [each.spec for each in children_of(first)] == [child.spec]
    assert [each.spec for each in walk(second, "down")] == [second.spec, first.spec, child.spec]


# --- kills ---------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ended here. No code catches it."""


@contextmanager
def killed_at(number: int) -> Iterator[Callable[[], int]]:
    """Raise instead of the n-th write of a local root; yields a function that returns how many writes were asked for."""
    count = 0

    def watch(operation: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            nonlocal count
            count += 1
            if count >= number:
                raise Killed
            return operation(*arguments, **named)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(LocalFiles, name, watch(getattr(LocalFiles, name)))
        yield lambda: count


def every_kill(work: Callable[[Store], object], prepare: Callable[[Store], object]) -> Iterator[Store]:
    """Yield a store for each write of `work`, killed before that write, until `work` ends whole."""
    for number in range(1, 200):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            prepare(store)
            try:
                with killed_at(number):
                    work(store)
            except Killed:
                yield store
                continue
            yield store
            assert number > 2, "nothing was killed"
            return


def two_runs(store: Store) -> None:
    write_dag(store, [[], [0], [0, 1]])
    open_log(store)


@pytest.mark.parametrize(
    ("work", "prepare"),
    [
        (lambda store: write(store, 7, [next(store.artifacts("tests", "n0"))]), two_runs),
        (lambda store: write(store, 7, []), make_log),
        (open_log, lambda store: write_dag(store, [[], [0], [0, 1], [2], [3]])),
        (open_log, lambda store: (two_runs(store), write_dag(store, [[], [0], [0, 1], [2], [3], [4], [5]]))),
        (rebuild_log, two_runs),
    ],
    ids=["commit", "first commit", "first use", "fold", "rebuild"],
)
def test_a_kill_before_any_write_loses_no_artifact(work: Callable, prepare: Callable) -> None:
    for store in every_kill(work, prepare):
        assert unlogged(store, every_manifest(store).sound) == []
        open_log(store)
        assert unlogged(store, every_manifest(store).sound) == []
        for artifact in store.artifacts():
            children = {a.spec.address for a in store.artifacts() for r in a.spec.inputs if r.address == artifact.spec.address}
            assert {child.spec.address for child in children_of(artifact)} == children


# --- others at work ------------------------------------------------------------------------------------------------------


def test_readers_find_every_commit_while_others_write_and_compact(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    open_log(store)
    committed: list[str] = []
    failures: list[BaseException] = []
    writers_left = threading.Semaphore(0)

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # it is raised again below
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def writer(first: int) -> None:
        try:
            for number in range(first, first + 12):
                committed.append(write(store, number, [parent]).spec.address)
        finally:
            writers_left.release()

    def reader() -> None:
        while writers_left._value < 2:
            before = set(committed)
            assert before <= {child.spec.address for child in children_of(parent)}

    threads = [guarded(lambda first=first: writer(first)) for first in (100, 200)]
    threads += [guarded(reader), guarded(reader)]
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(children_of(parent)) == 24
    assert len(Storage(str(tmp_path)).records(SEGMENTS)) < 24, "they were merged"


def test_what_is_merged_between_a_listing_and_a_read_is_found(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    make_log(store)
    for number in range(1, 3):
        write(store, number, [parent])
        compact.fold(store.storage, _entries(store))
    log = CommitLog(store.storage)
    log.refresh()
    compact.merge(store.storage)
    write(store, 3, [parent])
    key = data_key(own_bytes(parent.manifest))
    assert len(log.find([key])[key]) == 4


def _entries(store: Store) -> list:
    log = CommitLog(store.storage)
    log.refresh()
    return log.entries


# --- what the log lacks, and lies ----------------------------------------------------------------------------------------


def test_a_manifest_without_an_entry_is_named_and_a_rebuild_finds_it(tmp_path: Path) -> None:
    """An older checkout commits without an entry: here its file is removed."""
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    open_log(store)
    child = write(store, 1, [parent])
    store.storage.delete(ENTRIES)
    assert children_of(parent) == []
    assert [(f.kind, f.artifact) for f in check_lineage(store)] == [("unlogged", child.spec.address)]
    rebuild_log(store)
    assert check_lineage(store) == []
    assert [each.spec.address for each in children_of(parent)] == [child.spec.address]


def test_a_rebuild_forgets_what_is_gone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parent, other = write(store, 0, []), write(store, 1, [])
    gone = write(store, 2, [parent])
    open_log(store)
    store.delete(gone)
    assert children_of(parent) == []
    key = data_key(own_bytes(gone.manifest))
    assert CommitLog(store.storage).find([key]) == {key: [gone.spec.address]}
    rebuild_log(store)
    assert CommitLog(store.storage).find([key]) == {}
    assert [each.spec.address for each in made_by(store, "tests.node", "1")] == sorted(
        [parent.spec.address, other.spec.address]
    )


def test_a_log_of_the_first_format_is_made_again(tmp_path: Path) -> None:
    """It has no rows for a stage of any version."""
    store = Store(str(tmp_path))
    made = [write(store, number, []) for number in range(2)]
    make_log(store)
    store.storage.delete(SEGMENTS)
    store.storage.delete(ENTRIES)
    store.storage.replace(".lineage/log.json", b'{"format": 1}\n')
    assert [a.spec.address for a in made_by(store, "tests.node")] == sorted(a.spec.address for a in made)
    assert store.storage.read_text(".lineage/log.json") == '{"format": 2}\n'
    assert check_lineage(store) == []


def test_forged_rows_add_nothing(tmp_path: Path) -> None:
    """Rows that say that an unrelated artifact, or one that does not exist, was made from the parent."""
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    child, unrelated = write(store, 1, [parent]), write(store, 2, [])
    open_log(store)
    key = data_key(own_bytes(parent.manifest))
    lie = f'{{"address":"{unrelated.spec.address}","keys":[{key}]}}'
    ghost = f'{{"address":"tests/n9/_/{"0" * 32}","keys":[{key}]}}'
    for number, text in enumerate((lie, ghost)):
        store.storage.replace(f"{ENTRIES}/{number:064x}.json", text.encode())
    for _ in range(2):
        assert [each.spec.address for each in children_of(parent)] == [child.spec.address]
        assert below(store, parent) == {parent.spec.address, child.spec.address}
        compact.fold(store.storage, _entries(store))


@pytest.mark.parametrize(
    ("where", "data"),
    [
        (f"{ENTRIES}/{'0' * 64}.json", b"\xff"),
        (f"{ENTRIES}/{'0' * 64}.json", b"{}"),
        (f"{ENTRIES}/{'0' * 64}.json", b'{"address": "../../etc", "keys": [1]}'),
        (f"{ENTRIES}/{'0' * 64}.json", b'{"address": "a/b", "keys": [18446744073709551616]}'),
        (f"{ENTRIES}/{'0' * 64}.json", b'{"address": "a/b", "keys": [true]}'),
        (f"{ENTRIES}/{'0' * 64}.json", b"[" * 100_000),
        (f"{ENTRIES}/readme.txt", b"hello"),
        (f"{SEGMENTS}/000000001-{'0' * 32}.segment", b""),
        (f"{SEGMENTS}/000000001-{'0' * 32}.segment", b"marinlg1" * 100),
        (f"{SEGMENTS}/../segments/x.parquet", b"PAR1"),
        (".lineage/log.json", b'{"format": 99}'),
    ],
)  # fmt: skip
def test_a_damaged_log_is_named_and_a_rebuild_mends_it(tmp_path: Path, where: str, data: bytes) -> None:
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    child = write(store, 1, [parent])
    open_log(store)
    (tmp_path / ENTRIES).mkdir(exist_ok=True)
    (tmp_path / where).write_bytes(data)
    with pytest.raises(ValueError, match="lineage --rebuild") as raised:
        children_of(parent)
    assert str(tmp_path) in str(raised.value)
    rebuild_log(store)
    assert [each.spec.address for each in children_of(parent)] == [child.spec.address]


def test_any_changed_byte_of_a_segment_is_named_or_changes_no_confirmed_answer(tmp_path: Path) -> None:
    """Rows may be lost to an attacker; none is believed that no manifest confirms."""
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    children = {write(store, number, [parent]).spec.address for number in range(1, 4)}
    open_log(store)
    (name,) = store.storage.records(SEGMENTS)
    path = tmp_path / SEGMENTS / name
    whole = path.read_bytes()
    outcomes = {"named": 0, "answered": 0}
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert {child.spec.address for child in children_of(parent)} <= children
            outcomes["answered"] += 1
        except ValueError as error:
            assert "commit log" in str(error)
            outcomes["named"] += 1
    assert min(outcomes.values()) > 10


def test_without_permission_every_query_reads_the_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    parent = write(store, 0, [])
    child = write(store, 1, [parent])

    def refuse(*_: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(LocalFiles, "replace", refuse)
    assert [each.spec.address for each in children_of(parent)] == [child.spec.address]
    assert "cannot be written" in caplog.text
