"""Probes: what an outcome records, when a service counts as broken, what the ledger and the alerts make of it."""

import datetime
from pathlib import Path

import dagster as dg
import pytest

from lineage.artifact.store import Store
from marin_assets.cli.upkeep import materialize_upkeep
from marin_assets.probes import probes_asset
from operations.alerts.conditions import probe_findings
from operations.ledger.ledger import open_ledger
from operations.probes.outcomes import FOLDER, Outcome, health, of_day, record, send, since
from operations.probes.storage import write_and_read
from recipes.prices import price_table
from resources.lab import Lab

NOW = datetime.datetime(2026, 11, 25, 0, 5, tzinfo=datetime.UTC)
MINUTES = datetime.timedelta(minutes=10)


def outcomes(oks: str, probe: str = "api_server") -> list[Outcome]:
    """An outcome for each letter (`y`: ok), ten minutes apart; the last is at NOW."""
    times = [(NOW - MINUTES * (len(oks) - 1 - i)).isoformat() for i in range(len(oks))]
    return [Outcome(probe, times[i], ok == "y", i + 1.0, "" if ok == "y" else "E: away") for i, ok in enumerate(oks)]


def test_an_error_of_one_probe_is_its_outcome_and_the_others_are_sent() -> None:
    def away() -> None:
        raise ConnectionError("no route")

    first, second = send({"away": away, "here": lambda: None}, lambda: NOW)
    assert (first.ok, first.why, first.at) == (False, "ConnectionError: no route", "2026-11-25T00:05:00+00:00")
    assert second.ok and second.why == "" and second.seconds >= 0


def test_outcomes_of_two_days_are_kept_apart_and_read_together(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    sent = outcomes("yny")
    for outcome in sent:
        record(store, [outcome])
    assert [len(of_day(store, day)) for day in ("2026-11-24", "2026-11-25")] == [2, 1]
    assert since(store, NOW - datetime.timedelta(days=1), NOW) == sent
    assert since(store, NOW - MINUTES, NOW) == sent[1:]


@pytest.mark.parametrize(("oks", "broken"), [("nn", False), ("nnn", True), ("ynnn", True), ("nnny", False), ("nnynn", False)])
def test_three_failures_in_a_row_are_broken(oks: str, broken: bool) -> None:
    [service] = health(outcomes(oks))
    assert service.broken == broken and [f.subject for f in probe_findings([service])] == ["api_server"] * broken


def test_latencies_are_those_of_answers() -> None:
    [service] = health([*outcomes("y" * 20), Outcome("api_server", NOW.isoformat(), False, 900.0, "Timeout: slow")])
    assert (service.times, service.ok, service.median_seconds, service.p95_seconds) == (21, 20, 10.5, 19.0)
    assert service.success_ratio == 20 / 21 and service.last_error.endswith("Timeout: slow")
    [dead] = health(outcomes("n"))
    assert dead.median_seconds is None and dead.p95_seconds is None


def test_a_root_that_cannot_be_written_is_an_outcome(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    write_and_read(store)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "the probe leaves nothing behind"
    (tmp_path / "file").write_text("a file where the root should be")
    [outcome] = send({"write": lambda: write_and_read(Store(str(tmp_path / "file")))}, lambda: NOW)
    assert not outcome.ok and "file" in outcome.why


def test_the_ledger_has_the_outcomes_and_names_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    record(store, outcomes("yny"))
    store.storage.replace(f"{FOLDER}/2026-11-23.jsonl", b"{not json\n")
    store.storage.replace(f"{FOLDER}/2020-01-01.jsonl", b"too old to be read\n")
    ledger = open_ledger([store], price_table(), NOW.date())
    assert ledger.tables["probes"].sort("at")["ok"].to_list() == [True, False, True]
    assert [name.rpartition("/")[2] for name in ledger.unreadable] == ["2026-11-23.jsonl"]


def test_the_asset_probes_a_lab_on_this_machine(tmp_path: Path) -> None:
    lab = Lab.at(str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([probes_asset()], resources={"lab": lab}, instance=instance)
        [materialized] = result.asset_materializations_for_node("operations__probes")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert {o.probe for o in of_day(lab.store, today) if o.ok} == {"write_kept", "write_expiring", "dagster_database"}
    assert materialized.metadata["failed"].value == 0
    assert [evaluation.passed for evaluation in result.get_asset_check_evaluations()] == [True]


def test_the_command_materializes_what_is_no_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "root"))
    made = materialize_upkeep("operations/probes", None)
    assert made is not None and made.metadata["failed"] == 0 and not made.failed_checks
    assert materialize_upkeep("operations/nothing", None) is None
    with pytest.raises(ValueError, match="operations/probes has no partitions; leave --partition out"):
        materialize_upkeep("operations/probes", "2026-11-25")
    with pytest.raises(ValueError, match="canary/cpu has partitions; give one with --partition, such as 20"):
        materialize_upkeep("canary/cpu", None)
