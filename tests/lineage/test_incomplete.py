"""A stage with failing shards: the others finish, nothing is committed, failures are recorded; waivers; completion."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from poison import poisoned, waived_shards

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.build.incomplete import leave_out, read_incomplete
from lineage.build.nodes import MissingArtifactError, Node, resolve, spec_of
from lineage.build.plan import build
from lineage.build.waiver_stage import waive
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.shards.failures import IncompleteError
from lineage.shards.run import ShardLimits
from lineage.stage import Stage
from lineage.trust.fingerprint import stage_code
from lineage.trust.gate import GateError, inspect
from lineage.trust.waivers import Waiver
from lineage.writing.write import writing
from lineage.writing.writer import Writer

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Words:
    """One shard for each word. `log` is not part of the identity."""

    words: tuple[str, ...] = NAMES
    omittable: bool = True


def write_word(folder: Path, word: str, log: str) -> Mapping[str, int]:
    with Path(log).open("a") as stream:
        stream.write(f"{word}\n")
    (folder / f"{word}.txt").write_text(word * 100)
    return {"rows": 1}


def join_words(folder: Path, paths: list[Path]) -> Mapping[str, int]:
    (folder / "all.joined").write_text("".join(path.read_text() for path in paths))
    return {"words": len(paths)}


def write_words(out: Writer, config: Words) -> None:
    tasks = {word: (word, f"{out.store.root}/log") for word in config.words}
    done = out.map_shards(write_word, tasks, omittable=config.omittable)
    out.map_shards(join_words, {"join": ([out.folder / f"{word}.txt" for word in done],)})
    rows = sum(statistics["rows"] for statistics in done.values())
    out.record(rows_in=rows, rows_out=rows, drops={})


def count_words(out: Writer, config: Words, words: Artifact) -> None:
    (out.folder / "count.txt").write_text(str(len(words.files(".txt"))))


WORDS = Stage("tests.words", "1", write_words)
COUNT = Stage("tests.count", "1", count_words)


def words_node(config: Words | None = None) -> Node:
    return Node(("tests", "words"), "p", WORDS, config or Words())


def count_node(config: Words | None = None) -> Node:
    return Node(("tests", "count"), "p", COUNT, Words(), {"words": words_node(config)})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def runs_of(store: Store) -> list[str]:
    return Path(store.root, "log").read_text().split()


def fail(
    store: Store, shards: Mapping[str, str], config: Words | None = None, execution: Execution = ONE_WORKER
) -> IncompleteError:
    with pytest.raises(IncompleteError) as caught:
        build(store, poisoned(words_node(config), shards), execution=execution, run_id="run-1")
    return caught.value


def test_one_bad_shard_is_quarantined_by_name_and_the_rest_finish(store: Store) -> None:
    error = fail(store, {"b": "value"})
    assert sorted(runs_of(store)) == list(NAMES), "what the data rule out is tried once"
    (failure,) = error.failures
    assert (failure.name, failure.kind, failure.attempts) == ("b", "permanent", 1)
    assert failure.error == "ValueError: the record cannot be read"
    assert "raise ValueError" in failure.traceback and failure.given[2:] == ("'b'", repr(f"{store.root}/log"))
    assert "1 of 4 shards failed and are quarantined" in str(error) and "3 shards are finished and kept" in str(error)
    assert not list(Path(store.root).rglob(MANIFEST_NAME))


def test_the_record_says_what_is_missing_and_every_reader_refuses(store: Store) -> None:
    error = fail(store, {"b": "value"})
    record = read_incomplete(store, spec_of(store, words_node()).address)
    assert record is not None and record.failures == error.failures and (record.num_shards, record.num_finished) == (4, 3)
    with pytest.raises(MissingArtifactError, match=r"words\[p\] is incomplete .*b \(ValueError: the record cannot be read"):
        build(store, count_node())
    gated = Node(("tests", "gated"), "p", Stage("tests.gated", "1", count_words, gate={}), Words(), {"words": words_node()})
    with pytest.raises(GateError, match=r"incomplete: tests/words\[p\].*only missing shards run"):
        build(store, gated)


def test_materializing_again_runs_only_the_missing_shard_and_clears_the_record(store: Store, tmp_path: Path) -> None:
    fail(store, {"b": "value"})
    artifact = build(store, words_node()).artifact
    assert runs_of(store) == [*NAMES, "b"]
    assert read_incomplete(store, artifact.spec.address) is None and not artifact.manifest.omitted
    undisturbed = build(Store(str(tmp_path / "other")), words_node()).artifact
    assert artifact.data_version == undisturbed.data_version


def test_a_failure_that_may_pass_is_tried_again(store: Store) -> None:
    (failure,) = fail(store, {"c": "connection"}).failures
    assert (failure.kind, failure.attempts) == ("transient", 2)
    assert runs_of(store) == [*NAMES, "c"]


def test_a_stage_whose_shards_all_fail_stops_early(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    error = fail(store, dict.fromkeys(NAMES, "value"), execution=Execution(limits=ShardLimits(max_failures=2)))
    assert runs_of(store) == ["a", "b"] and "2 were not tried" in str(error)


def test_memory_and_kills_are_distinguished_and_the_others_go_on(tmp_path: Path) -> None:
    """Two workers: one shard takes more than a worker may hold, one is killed; a broken pool would have lost all."""
    store, execution = Store(str(tmp_path)), Execution(2, ShardLimits(memory_bytes=400 << 20, attempts=1))
    hog, killed = fail(store, {"a": "hog", "c": "kill"}, execution=execution).failures
    assert (hog.name, hog.kind, killed.name, killed.kind) == ("a", "memory", "c", "killed")
    assert hog.peak_rss_bytes is not None and 150 << 20 < hog.peak_rss_bytes < 600 << 20
    assert "MemoryError" in hog.error and "np.ones" in hog.traceback
    assert killed.peak_rss_bytes and "SIGKILL" in killed.error and "no out-of-memory kill" in killed.error
    assert sorted(build(store, words_node(), execution=execution).artifact.manifest.shards) == [*NAMES, "join"]
    assert sorted(runs_of(store)) == sorted([*NAMES, "a", "c"])


def test_a_shard_out_of_memory_is_tried_again_alone(store: Store) -> None:
    (failure,) = fail(store, {"d": "memory"}).failures
    assert (failure.kind, failure.attempts) == ("memory", 2) and failure.peak_rss_bytes


def test_a_waiver_lets_it_through_without_the_shards_on_record(store: Store) -> None:
    fail(store, {"b": "value"})
    node = words_node()
    waiver = waived_shards(store, node)
    artifact = build(store, poisoned(node, {"b": "value"})).artifact
    assert artifact.manifest.omitted == {"b": "ValueError: the record cannot be read"}
    assert artifact.manifest.statistics["rows_in"] == 3
    (used,) = artifact.manifest.extra["waivers"]
    assert used["address"] == waiver.spec.address and used["let_through"] == ["incomplete: tests/words[p]"]
    child = build(store, count_node()).artifact
    assert child.files()[0].read_text() == "3"
    assert [record["address"] for record in child.manifest.extra["waivers"]] == [waiver.spec.address]
    (finding,) = inspect(store, [child.ref("x")], {})
    assert (finding.problem, finding.artifact) == ("incomplete", "tests/words[p]") and "b (ValueError" in finding.detail


def test_what_lacks_a_shard_is_completed_by_materializing_it_again(store: Store) -> None:
    fail(store, {"b": "value"})
    waived_shards(store, words_node())
    lacking = build(store, poisoned(words_node(), {"b": "value"})).artifact
    child = build(store, count_node()).artifact
    ran = len(runs_of(store))
    whole = build(store, words_node()).artifact
    assert runs_of(store)[ran:] == ["b"] and not whole.manifest.omitted
    assert whole.spec.address == lacking.spec.address and whole.data_version != lacking.data_version
    assert read_incomplete(store, whole.spec.address) is None
    with pytest.raises(MissingArtifactError, match="is stale"):
        resolve(store, count_node())
    assert [finding.problem for finding in inspect(store, [child.ref("x")], {})] == ["swapped"]
    assert build(store, count_node()).artifact.files()[0].read_text() == "4"
    assert build(store, words_node()).reused


def test_what_was_merged_without_a_shard_is_merged_again(store: Store, tmp_path: Path) -> None:
    """In an artifact that is completed, and in an attempt that died after it had merged."""
    whole = build(Store(str(tmp_path / "whole")), words_node()).artifact
    fail(store, {"b": "value"})
    waived_shards(store, words_node())
    node = words_node()
    earlier = read_incomplete(store, spec_of(store, node).address)
    assert earlier is not None
    code = stage_code(WORDS.module)
    with pytest.raises(KeyError), writing(store, spec_of(store, node), code.fingerprint, packages=code.packages) as out:
        leave_out(store, out, earlier)
        run = poisoned(node, {"b": "value"}).stage.run
        assert run is not None
        run(out, node.config)
        assert len((out.folder / "all.joined").read_text()) == 300
        raise KeyError("stopped")
    lacking = build(store, poisoned(node, {"b": "value"})).artifact
    assert len(lacking.files(".joined")[0].read_text()) == 300 and "join" not in lacking.manifest.shards
    completed = build(store, node).artifact
    assert completed.data_version == whole.data_version
    assert runs_of(store).count("a") == 1, "no other shard was done again"


def test_an_expired_waiver_opens_nothing(store: Store) -> None:
    fail(store, {"b": "value"})
    tomorrow = datetime.date.today() + datetime.timedelta(days=2)
    waived_for_others = Waiver("incomplete", "tests/words[p]", "ada", "why", tomorrow.isoformat(), target="elsewhere/*")
    expired = Waiver("incomplete", "tests/words[p]", "ada", "why", "2026-01-01")
    for waiver in (waived_for_others, expired):
        waive(store, waiver)
    fail(store, {"b": "value"})


def test_a_waiver_covers_no_shard_that_fails_for_the_first_time(store: Store) -> None:
    fail(store, {"b": "value"})
    waived_shards(store, words_node())
    assert [failure.name for failure in fail(store, {"b": "value", "c": "value"}, Words((*NAMES, "e"))).failures] == ["b", "c"]
    fail(store, {"b": "value"}, Words((*NAMES, "f")))  # of another identity: nothing is on record
    build(store, poisoned(words_node(), {"b": "value"}))


def test_a_stage_that_means_nothing_without_a_shard_does_not_ask_for_waivers(store: Store) -> None:
    config = Words(omittable=False)
    fail(store, {"b": "value"}, config)
    waived_shards(store, words_node(config))
    fail(store, {"b": "value"}, config)


def test_two_shards_that_write_one_file_are_refused(store: Store) -> None:
    def both(out: Writer, config: Words) -> None:
        out.map_shards(write_word, dict.fromkeys(("one", "two"), ("same", f"{store.root}/log")))

    with pytest.raises(ValueError, match=r"shards one and two both wrote same.txt"):
        build(store, Node(("tests", "both"), None, Stage("tests.both", "1", both), Words()))
    assert not list(Path(store.root).rglob(MANIFEST_NAME))


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"attempts": 0}, "attempts is 0"), ({"memory_bytes": 1000}, "1000 bytes"), ({"memory_bytes_of": {"x": 5}}, "x is 5")],
)
def test_limits_that_make_no_sense_are_refused(limits: Mapping, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardLimits(**limits)


def test_the_limit_of_a_stage_is_its_own() -> None:
    limits = ShardLimits(memory_bytes=1 << 30, memory_bytes_of={"tests.words": 1 << 31})
    assert limits.of_stage("tests.words").memory_bytes == 1 << 31
    assert limits.of_stage("tests.count").memory_bytes == 1 << 30
