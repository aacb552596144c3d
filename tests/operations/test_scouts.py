"""Scouts: what each one finds and what it leaves alone, reports that keep their first times, and scouts that are silent."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from random_lineage import write
from storage_worlds import NOW, planned

from datakit.sources.upstream import Upstream
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer
from operations.ledger.ledger import Ledger, open_ledger
from operations.ledger.schema import CHECKS
from operations.scouts import ledger_scouts, store_scouts
from operations.scouts.reports import FOLDER, Finding, Look, Severity, read_report, reports, scouted, silent
from operations.storage.purge import purge
from recipes.prices import price_table

NIGHT = datetime.datetime(2026, 11, 25, 2, tzinfo=datetime.UTC)
DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)


def finding(subject: str, severity: Severity = "low") -> Finding:
    return Finding(subject, severity, f"{subject} rots", "./marin status")


def at(store: Store, when: datetime.datetime, *findings: Finding):
    """The report of a look that ends a minute after it began."""
    times = iter((when, when + HOUR / 60))
    return scouted(store, "drift", lambda: Look(findings, len(findings)), lambda: next(times))


def test_a_finding_keeps_its_id_and_first_time_until_it_is_gone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    [first] = at(store, NIGHT, finding("a")).seen
    second = at(store, NIGHT + DAY, finding("b", "high"), finding("a"))
    assert [(seen.finding.subject, seen.first_seen) for seen in second.seen] == [
        ("b", (NIGHT + DAY).isoformat(timespec="seconds")),
        ("a", first.first_seen),
    ]
    assert second.seen[1].id == first.id and read_report(store, "drift") == second
    at(store, NIGHT + 2 * DAY)
    [again] = at(store, NIGHT + 3 * DAY, finding("a")).seen
    assert again.first_seen == (NIGHT + 3 * DAY).isoformat(timespec="seconds") and again.id == first.id


def test_two_findings_of_one_subject_are_refused_and_the_last_report_stays(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    before = at(store, NIGHT, finding("a"))
    with pytest.raises(ValueError, match="two findings have the subject 'b'"):
        at(store, NIGHT + DAY, finding("b"), finding("b", "high"))
    assert read_report(store, "drift") == before


def test_a_scout_is_silent_at_six_if_it_has_not_reported_since_two(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert list(silent(store, ["drift"], NIGHT + 4 * HOUR)) == ["drift"], "it has never reported"
    at(store, NIGHT)
    assert not silent(store, ["drift"], NIGHT + 4 * HOUR)
    tomorrow = NIGHT + DAY
    assert not silent(store, ["drift"], tomorrow + 3.9 * HOUR), "the scouts of this night may still be at work"
    [why] = silent(store, ["drift"], tomorrow + 4 * HOUR).values()
    assert "its last report is of 2026-11-25T02:01:00+00:00; it was due at 2026-11-26T02:00:00+00:00" in why
    assert not silent(store, ["drift"], NIGHT + 23 * HOUR), "before the next night it owes nothing"


def test_a_broken_report_is_silence_and_the_next_one_says_what_was_lost(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    at(store, NIGHT, finding("a"))
    store.storage.replace(f"{FOLDER}/drift.json", b'{"format": "scout_report/1", "scout": 7}')
    [why] = silent(store, ["drift"], NIGHT + HOUR).values()
    assert f"{FOLDER}/drift.json" in why and reports(store, ["drift"]) == []
    report = at(store, NIGHT + DAY, finding("a"))
    assert report.left_out == {f"{FOLDER}/drift.json": "the report before cannot be read: first times start again today"}
    assert not silent(store, ["drift"], NIGHT + DAY + 4 * HOUR)


def ledger_of(store: Store, checks: Sequence[tuple] = ()) -> Ledger:
    dagster = {"checks": pl.DataFrame(checks, schema=CHECKS, orient="row"), "dagster_runs": pl.DataFrame()}
    opened_ledger = open_ledger([store], price_table(), NIGHT.date())
    return Ledger({**opened_ledger.tables, **dagster}, {})


def test_a_cache_is_a_finding_when_nothing_has_read_it_for_two_weeks(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    read, unread = (write(store, number, [], stage="datakit.token_cache") for number in (1, 2))
    write(store, 3, [read])
    now = datetime.datetime.now(datetime.UTC)
    assert ledger_scouts.unread_caches(ledger_of(store), now).findings == ()
    look = ledger_scouts.unread_caches(ledger_of(store), now + 15 * DAY)
    assert [each.subject for each in look.findings] == [f"{tmp_path.name}/{unread.spec.address}"] and look.examined == 2


def outcomes(check: str, passed: str) -> list[tuple]:
    """Evaluations of a check, one an hour: `+` passed, `-` failed."""
    times = [(NIGHT + number * HOUR).isoformat() for number in range(len(passed))]
    return [("corpus", "kjv", check, mark == "+", "ERROR", "run", when) for mark, when in zip(passed, times, strict=True)]


@pytest.mark.parametrize(
    ("passed", "is_flaky"), [("++++", False), ("--++", False), ("+-", False), ("+-+", True), ("-+-", True)]
)
def test_a_check_is_flaky_when_its_outcome_changes_and_changes_back(passed: str, is_flaky: bool, tmp_path: Path) -> None:
    ledger = ledger_of(Store(str(tmp_path)), [*outcomes("other", "+++"), *outcomes("rows", passed)])
    look = ledger_scouts.flaky_checks(ledger)
    assert [each.subject for each in look.findings] == ["corpus[kjv] rows"] * is_flaky and look.examined == 2


@pytest.mark.parametrize(("last", "is_slow"), [(19.0, False), (21.0, True)])
def test_a_stage_is_slow_against_the_median_of_its_earlier_attempts(last: float, is_slow: bool, tmp_path: Path) -> None:
    opened_ledger = ledger_of(Store(str(tmp_path)))
    seconds = [10.0, 9.0, 11.0, 10.0, 40.0, last]
    rows = [
        {
            "store": "s",
            "name": f"ferry/x[{day}]",
            "stage": "x",
            "state": "done",
            "hardware": "cpu",
            "seconds": each,
            "started": f"{day}",
        }
        for day, each in enumerate(seconds)
    ]
    attempts = pl.concat([opened_ledger.tables["attempts"], pl.DataFrame(rows)], how="diagonal_relaxed")
    look = ledger_scouts.slow_stages(Ledger({**opened_ledger.tables, "attempts": attempts}, {}))
    assert [each.subject for each in look.findings] == ["s/ferry/x on cpu"] * is_slow and look.examined == 1


def test_the_last_checkpoint_of_a_run_needs_an_audit(tmp_path: Path) -> None:
    opened_ledger = ledger_of(Store(str(tmp_path)))
    of = [("a", 1, "a/1"), ("a", 2, "a/2"), ("b", 1, "b/1"), ("cpu", 1, "canary/cpu/1")]
    checkpoints = pl.DataFrame([{"store": "s", "run": run, "step": step, "address": place} for run, step, place in of])
    audits = pl.DataFrame({"store": ["s", "s"], "checkpoint": ["a/1", "b/1"]})
    look = ledger_scouts.unaudited_checkpoints(
        Ledger({**opened_ledger.tables, "checkpoints": checkpoints, "audits": audits}, {})
    )
    assert [each.subject for each in look.findings] == ["s/a/2"] and look.examined == 2


def test_a_folder_without_a_manifest_is_an_orphan_and_grows_in_severity(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = write(store, 1, [])
    sound = store_scouts.orphaned_files([store], {})
    assert sound.findings == () and sound.examined == 1
    for place in (f"{artifact.spec.address}/data-loser", "tests/n9/-/v/data-killed"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "rows.bin").write_bytes(b"12345")
    (tmp_path / ".work" / "data-x").mkdir(parents=True)
    (tmp_path / ".work" / "data-x" / "y").write_text("an attempt at work")
    first = store_scouts.orphaned_files([store], {})
    assert [(each.severity, each.subject.partition("/")[2]) for each in first.findings] == [
        ("low", f"{artifact.spec.address}/data-loser"),
        ("low", "tests/n9/-/v/data-killed"),
    ]
    known = {each.subject: "2026-11-25T02:00:00+00:00" for each in first.findings}
    assert {each.severity for each in store_scouts.orphaned_files([store], known).findings} == {"medium"}


def test_what_a_purge_has_in_its_trash_is_no_orphan(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    purge(store, planned(store, {}), {}, NOW)
    assert not list(store.artifacts()) and store_scouts.orphaned_files([store], {}).findings == ()


def words(out: Writer, config: Mapping[str, str]) -> None:
    """Write a file whose content is outside the config: a stage that cannot be made again."""
    (out.folder / "words.txt").write_text(Path(config["path"]).read_text())


WORDS = Stage("tests.words", "1", words, config=dict)


def test_an_artifact_that_comes_out_otherwise_is_found_and_nothing_is_edited(tmp_path: Path) -> None:
    store, outside = Store(str(tmp_path / "store")), tmp_path / "outside.txt"
    outside.write_text("then")
    artifact = build(store, Node(("words",), None, WORDS, {"path": str(outside)})).artifact
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    sampling = store_scouts.Sampling(artifacts=5)
    sound = store_scouts.unreproducible([store], {"tests.words": WORDS}, NIGHT.date(), sampling)
    assert (sound.findings, sound.examined, sound.left_out) == ((), 1, {})
    outside.write_text("now")
    [changed] = store_scouts.unreproducible([store], {"tests.words": WORDS}, NIGHT.date(), sampling).findings
    assert changed.severity == "high" and "words.txt" in changed.evidence["difference"]
    outside.unlink()
    gone = store_scouts.unreproducible([store], {"tests.words": WORDS}, NIGHT.date(), sampling)
    assert not gone.findings and "FileNotFoundError" in gone.left_out[f"store/{artifact.spec.address}"]
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before


def test_an_origin_that_moved_is_found_and_one_that_is_silent_is_left_out() -> None:
    def upstream_of(loader: str) -> Upstream | None:
        if loader == "down":
            raise ConnectionError("no answer")
        return {"same": Upstream("abc1234", "abc1234fff"), "moved": Upstream("1.0", "1.1")}.get(loader)

    look = store_scouts.moved_upstreams({"a": "same", "b": "moved", "c": "down", "d": "files"}, upstream_of)
    assert [each.summary for each in look.findings] == ["b pins 1.0, its origin has 1.1"]
    assert look.examined == 2 and look.left_out == {"c": "ConnectionError: no answer"}
