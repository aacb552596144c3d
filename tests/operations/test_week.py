"""The weekly report: every run is in its table, costs add up, it is the same without Dagster's database, and it escapes."""

import datetime
import json
from decimal import Decimal

import pytest
from ferry_costs import cost_by_hand
from small import FinishedFerry

from operations.alerts.conditions import CampaignRun
from operations.alerts.incidents import Finding, Incident
from operations.ledger.ledger import Ledger, open_ledger
from operations.reports.show import as_html, as_json, as_markdown
from operations.reports.week import Week, week_of
from recipes.prices import price_table

NOW = datetime.datetime.now(datetime.UTC)
MONDAY = (NOW - datetime.timedelta(days=NOW.weekday())).date()


def ledger(finished_ferry: FinishedFerry) -> Ledger:
    return open_ledger([finished_ferry.lab.store, finished_ferry.lab.ferry_store], price_table(), NOW.date())


def this_week(opened_ledger: Ledger, campaigns: dict | None = None) -> Week:
    """The week in which the ferry was finished_ferry: its cache may be some days old."""
    made = min(opened_ledger.tables["artifacts"]["created"])
    day = datetime.date.fromisoformat(str(made)[:10])
    return week_of(opened_ledger, [], campaigns, day - datetime.timedelta(days=day.weekday()))


def test_every_run_is_in_the_table_and_costs_add_up(finished_ferry: FinishedFerry) -> None:
    week = this_week(ledger(finished_ferry))
    made = {a.spec.process for a in finished_ferry.lab.ferry_store.artifacts() if a.spec.stage == "trainer.checkpoint"}
    assert len(week.sections["runs"]) == len(made) > 0
    for row in week.sections["runs"]:
        assert row["loss"] > 0 and row["hours"] > 0 and row["model_flops"] > 0 and row["bpb"] > 0
    spent = sum((row["dollars"] for row in week.sections["spending"]), Decimal(0))
    assert spent == cost_by_hand(finished_ferry.lab.ferry_store)


def test_without_the_database_all_is_the_same_but_what_is_named(finished_ferry: FinishedFerry) -> None:
    opened_ledger = ledger(finished_ferry)
    runs = {"ferry": [CampaignRun("2026-11-25", "r", "passed", "")]}
    with_it, without = this_week(opened_ledger, runs), this_week(opened_ledger)
    assert without.only_in_dagster == ("campaigns",) and with_it.only_in_dagster == ()
    assert {name: with_it.sections[name] for name in without.sections} == dict(without.sections)
    assert with_it.sections.keys() - without.sections.keys() == set(without.only_in_dagster)
    assert "only Dagster" in as_markdown(without) and "only Dagster" not in as_markdown(with_it)


def test_the_forms_say_the_same_and_escape_what_strangers_wrote(finished_ferry: FinishedFerry) -> None:
    evil = Finding("disk", "<script>alert(1)</script> | x", "s", "c")
    week = week_of(ledger(finished_ferry), [Incident("i", evil, f"{MONDAY}T01:00:00+00:00")], None, MONDAY)
    page, text = as_html(week), as_markdown(week)
    assert "<script>" not in page and "&lt;script&gt;" in page and "\\| x" in text
    assert json.loads(as_json(week))["sections"]["incidents"][0]["subject"] == evil.subject
    for row in week.sections["runs"]:
        assert row["run"] in page and row["run"] in text


def test_a_week_begins_on_monday() -> None:
    with pytest.raises(ValueError, match="Tuesday"):
        week_of(Ledger({}, {}), [], None, datetime.date(2026, 11, 24))
