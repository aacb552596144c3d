"""The verdict log: no verdict is lost in silence, and one bad record stops only what it is about."""

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from random_lineage import write

from lineage.artifact.manifest import sealed
from lineage.artifact.store import Artifact, Store
from lineage.trust.gate import inspect
from lineage.trust.verdict_log import LOG_FOLDER, Fault, Subject, Verdict, append, read_head, read_log
from lineage.trust.verdicts import accept_losses, quarantine, record_check, subject_of, verdicts


def record(store: Store, number: int) -> Path:
    return Path(store.root, LOG_FOLDER, f"{number:08d}.json")


def rewritten(path: Path, **changes: object) -> None:
    """A record with other content and a seal that fits."""
    content = json.loads(path.read_text())
    del content["seal"]
    content["verdict"] |= changes
    path.write_text(sealed(content))


@pytest.fixture
def made(tmp_path: Path) -> list[Artifact]:
    """Three artifacts, with a verdict each in the order of their numbers."""
    store = Store(str(tmp_path / "store"))
    artifacts = [write(store, number, []) for number in range(3)]
    for artifact in artifacts:
        quarantine(artifact, "scraped from the wrong site", "ada")
    return artifacts


def problems(artifact: Artifact) -> list[str]:
    return [finding.problem for finding in inspect(artifact.store, [artifact.ref("x")], {})]


def test_the_log_keeps_order_and_the_last_verdict_of_a_name_counts(made: list[Artifact]) -> None:
    quarantine(made[1], "it was the right site", "grace", standing=False)
    record_check(made[1], "rows", ["2 rows are lost"], "run 1")
    log = read_log(made[0].store)
    assert [entry.number for entry in log.records] == [1, 2, 3, 4, 5] and log.all_faults == ()
    assert [(v.kind, v.standing, v.who) for v in verdicts(made[1])] == [
        ("quarantined", False, "grace"),
        ("failed", True, "run 1"),
    ]
    assert read_head(made[0].store) == log.head and log.head.count == 5


def test_a_verdict_holds_for_equal_bytes_at_another_address(made: list[Artifact]) -> None:
    again = write(made[0].store, 0, [], remark="another config")
    assert again.spec.address != made[0].spec.address and again.data_version == made[0].data_version
    assert problems(again) == ["quarantined"]


BROKEN: dict[str, Callable[[Path], object]] = {
    "is missing": lambda path: path.unlink(),
    "cannot be read (JSONDecodeError": lambda path: path.write_text("garbage"),
    "cannot be read (": lambda path: path.write_text("[1]"),
    "cannot be read": lambda path: path.write_bytes(b"\xff\xfe"),
    "has format": lambda path: path.write_text(path.read_text().replace("verdict/2", "verdict/9")),
    "is not as it was sealed": lambda path: path.write_text(path.read_text().replace("true", "false")),
    "is not the one that the next record names": lambda path: rewritten(path, standing=False),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_bad_record_is_named_and_stops_only_what_it_is_about(made: list[Artifact], fault: str) -> None:
    BROKEN[fault](record(made[0].store, 2))
    (finding,) = [f for f in inspect(made[1].store, [made[1].ref("x")], {}) if f.problem == "unjudged"]
    assert f"record 2 of the verdict log {fault}" in finding.detail
    assert problems(made[0]) == ["quarantined"] and problems(made[2]) == ["quarantined"]
    fresh = write(made[0].store, 7, [])
    assert problems(fresh) == []
    quarantine(fresh, "still recorded", "ada")
    assert problems(fresh) == ["quarantined"]


def test_the_file_beside_it_says_what_a_bad_last_record_is(made: list[Artifact]) -> None:
    record(made[0].store, 3).write_text("garbage")
    assert problems(made[2]) == ["unjudged"] and problems(write(made[0].store, 7, [])) == []
    for beside in record(made[0].store, 3).parent.glob("00000003.[0-9a-f]*[0-9a-f]"):
        beside.unlink()
    assert problems(write(made[0].store, 8, [])) == ["unjudged"], "what it is about is unknown, so it stops everything"


def test_records_that_are_gone_without_a_trace_stop_everything(made: list[Artifact]) -> None:
    for number in (1, 2):
        for path in record(made[0].store, 1).parent.glob(f"{number:08d}.*"):
            path.unlink()
    fresh = write(made[0].store, 7, [])
    assert problems(fresh) == ["unjudged"], "record 1 is missing, and record 2 that named it is, too"
    accept_losses(fresh.store, [fault.id for fault in read_log(fresh.store).faults], "restored from memory", "ada")
    assert problems(fresh) == [] and problems(made[2]) == ["quarantined"]


def test_a_head_shows_that_the_end_was_cut_or_replaced(made: list[Artifact]) -> None:
    store, seen = made[0].store, read_head(made[0].store)
    assert read_log(store).fault_against(seen) is None
    record(store, 3).unlink()
    fault = read_log(store).fault_against(seen)
    assert isinstance(fault, Fault) and "record 3 of the verdict log is not there any more" in fault.detail
    quarantine(made[0], "another third record", "eve")
    replaced = read_log(store).fault_against(seen)
    assert replaced is not None and "is another now" in replaced.detail
    accept_losses(store, [replaced.id], "known", "ada")
    assert read_log(store).fault_against(seen) is None


def test_a_swapped_or_renumbered_record_is_found(made: list[Artifact]) -> None:
    first, second = record(made[0].store, 1), record(made[0].store, 2)
    texts = first.read_text(), second.read_text()
    first.write_text(texts[1])
    second.write_text(texts[0])
    assert "unjudged" in problems(made[0]) and "unjudged" in problems(made[1])


def test_a_judge_can_refuse_records(made: list[Artifact]) -> None:
    """The place where a policy of signatures comes in."""
    log = read_log(made[0].store, lambda where, text: "no key of ours signed it" if where.endswith("2.json") else None)
    (fault,) = log.faults
    assert "is refused: no key of ours signed it" in fault.detail and fault.is_about(subject_of(made[1]))
    assert not log.standing(subject_of(made[1])) and log.standing(subject_of(made[0]))


def _append_many(root: str, who: str) -> None:
    subject = Subject(("tests", who), None, "0" * 32)
    for number in range(20):
        append(Store(root), subject, Verdict(f"check{number}", "failed", "why", who, "now"))


def test_writers_at_once_lose_nothing_and_share_no_number(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    writers = [context.Process(target=_append_many, args=(str(tmp_path), f"w{i}")) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    log = read_log(Store(str(tmp_path)))
    assert not log.all_faults and [entry.number for entry in log.records] == list(range(1, 81))
    for i in range(4):
        assert len(log.standing(Subject(("tests", f"w{i}"), None, "0" * 32))) == 20


def test_a_record_says_everything_it_is_about(made: list[Artifact]) -> None:
    content = json.loads(record(made[0].store, 1).read_text())
    assert content["verdict"] == asdict(verdicts(made[0])[0])
    assert content["subject"] == {"key": ["tests", "n0"], "partition": None, "data_version": made[0].data_version}
