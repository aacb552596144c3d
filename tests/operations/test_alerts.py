"""Alerts: each kind reaches real servers, a storm stays small, a dead channel loses nothing, an incident is one thread."""

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from alert_servers import Mailbox, Web, github, smtp_server, web_server
from random_lineage import write

from lineage.artifact.store import Store
from lineage.jobs.summary import summarizing
from lineage.trust.verdicts import quarantine
from operations.alerts.channels import Email, GitHubIssues, Webhook
from operations.alerts.conditions import (
    CampaignRun,
    Thresholds,
    budget_findings,
    campaign_findings,
    disk_findings,
    gate_findings,
    queue_findings,
    waiver_findings,
)
from operations.alerts.incidents import Finding, Kind, read_state
from operations.alerts.messages import MAX_AN_HOUR
from operations.alerts.outbox import Channel, tell
from operations.ledger.ledger import open_ledger
from recipes.prices import price_table

NOW = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
KINDS = get_args(Kind.__value__)


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as running:
        yield running


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with smtp_server() as running:
        yield running


def finding(subject: str, kind: Kind = "failed_ferry") -> Finding:
    return Finding(kind, subject, f"{subject} broke", "./marin status", {"log": f"the end of the log of {subject}"})


def channels(web: Web, box: Mailbox) -> dict[str, Channel]:
    return {
        "slack": Webhook(f"{web.url}/hook"),
        "mail": Email("127.0.0.1", box.port, "lab@example.org", ("ada@example.org",)),
        "github": GitHubIssues("lab/marin", "secret", web.url),
    }


def test_every_kind_reaches_every_channel_with_its_evidence(tmp_path: Path, web: Web, box: Mailbox) -> None:
    store = Store(str(tmp_path))
    assert not tell(store, channels(web, box), [finding(f"x-{kind}", kind) for kind in KINDS], NOW)
    assert len(web.bodies) == len(box.mails) == len(web.issues) == len(KINDS)
    for kind in KINDS:
        for texts in ([body["text"] for body in web.bodies], box.mails, [issue["body"] for issue in web.issues]):
            [text] = [text for text in texts if f"x-{kind}" in text]
            assert f"the end of the log of x-{kind}" in text and f"docs/runbook.md#{kind.replace('_', '-')}" in text


def test_the_runbook_has_a_section_with_something_to_do_for_each_kind_and_no_other() -> None:
    runbook = (Path(__file__).resolve().parents[2] / "docs" / "runbook.md").read_text()
    sections = dict(re.findall(r"^## (\S+)\n(.+?)(?=^## |\Z)", runbook, re.MULTILINE | re.DOTALL))
    assert sorted(sections) == sorted(kind.replace("_", "-") for kind in KINDS)
    to_do = re.compile(r"(?:`|^)(?:\./marin|make|kubectl) |\]\(", re.MULTILINE)
    silent = [name for name, text in sections.items() if not to_do.search(text)]
    assert silent == [], "a section names a command or a page"


def test_an_incident_is_reported_once_is_one_thread_and_is_closed_when_it_recovers(tmp_path: Path, web: Web) -> None:
    store, github = Store(str(tmp_path)), {"github": GitHubIssues("lab/marin", "secret", web.url)}
    for _ in range(3):
        tell(store, github, [finding("a")], NOW)
    assert [issue["state"] for issue in web.issues] == ["open"] and not web.comments
    tell(store, github, [], NOW + HOUR)
    assert [issue["state"] for issue in web.issues] == ["closed"] and len(web.comments) == 1
    tell(store, github, [finding("a")], NOW + 2 * HOUR)
    assert [issue["state"] for issue in web.issues] == ["open"], "it broke again: the same thread"


def test_a_storm_of_a_thousand_failures_is_at_most_ten_messages(tmp_path: Path, web: Web, box: Mailbox) -> None:
    store, named = Store(str(tmp_path)), channels(web, box)
    for step, failures in enumerate((*range(1, MAX_AN_HOUR + 2), 1_000)):
        tell(store, named, [finding(f"s{i}") for i in range(failures)], NOW + datetime.timedelta(minutes=step))
    for count in (len(web.bodies), len(box.mails), len(web.issues)):
        assert 0 < count <= MAX_AN_HOUR
    tell(store, named, [finding(f"s{i}") for i in range(1_000)], NOW + 2 * HOUR)
    assert all(not waiting for waiting in read_state(store).waiting.values())
    assert len(read_state(store).incidents) == 1_000


def test_a_dead_channel_loses_nothing_and_holds_up_no_other(tmp_path: Path, web: Web, box: Mailbox) -> None:
    store, named = Store(str(tmp_path)), channels(web, box)
    web.dead = True
    failed = tell(store, named, [finding("a"), finding("b")], NOW)
    assert failed.keys() == {"slack", "github"} and len(box.mails) == 2
    tell(store, named, [finding("b")], NOW + HOUR)
    web.dead = False
    assert not tell(store, named, [finding("b")], NOW + 2 * HOUR)
    titles = [body["text"].splitlines()[0] for body in web.bodies]
    assert sorted(titles[:2]) == ["failed_ferry: a", "failed_ferry: b"] and titles[2:] == ["recovered: failed_ferry a"]
    states = {issue["title"]: issue["state"] for issue in web.issues}
    assert states == {"failed_ferry: a": "closed", "failed_ferry: b": "open"}


def test_no_address_and_no_token_is_in_an_error(tmp_path: Path, web: Web) -> None:
    web.dead = True
    named: dict[str, Channel] = {"slack": Webhook(f"{web.url}/hook"), "github": GitHubIssues("lab/marin", "secret", web.url)}
    for text in (*tell(Store(str(tmp_path)), named, [finding("a")], NOW).values(), repr(named)):
        assert "secret" not in text and web.url not in text.replace("api='" + web.url, "")
    with pytest.raises(ValueError, match="https") as refused:
        Webhook("http://hooks.example.org/T0/secret")
    assert "secret" not in str(refused.value)


def test_the_github_server_of_these_tests_refuses_what_githubs_schema_refuses(web: Web) -> None:
    bad = {
        "create": ({}, {"title": ["a"]}, {"title": "a", "colour": "red"}, {"title": "a", "body": "x" * 70_000}),
        "update": ({"state": "done"}, {"state": "closed", "state_reason": "fixed"}),
        "comment": ({}, {"body": 3}),
    }
    assert [github(web, "POST", "/repos/lab/marin/issues", {}, body)[0] for body in bad["create"]] == [422] * 4
    assert github(web, "POST", "/repos/lab/marin/issues", {}, {"title": "a", "labels": ["b"]})[0] == 201
    assert [github(web, "PATCH", "/repos/lab/marin/issues/1", {}, body)[0] for body in bad["update"]] == [422] * 2
    assert [github(web, "POST", "/repos/lab/marin/issues/1/comments", {}, body)[0] for body in bad["comment"]] == [422] * 2


def test_discord_pings_nobody(tmp_path: Path, web: Web) -> None:
    tell(Store(str(tmp_path)), {"chat": Webhook(f"{web.url}/hook", "discord")}, [finding("@everyone " * 999)], NOW)
    [body] = web.bodies
    assert body["allowed_mentions"] == {"parse": []} and len(body["content"]) <= 2_000


def test_campaigns_that_fail_or_pass_too_rarely_are_found() -> None:
    good, bad = CampaignRun("d", "r", "passed", ""), CampaignRun("d", "r", "regression", "loss_in_band")
    running = CampaignRun("d", "r", "running", "STARTED")
    assert not list(campaign_findings("ferry", [running, *[good] * 9]))
    assert [f.kind for f in campaign_findings("ferry", [bad, *[good] * 9])] == ["failed_ferry"]
    assert [f.kind for f in campaign_findings("canary_cpu", [good, bad, *[good] * 7])] == ["pass_rate"]
    assert [f.kind for f in campaign_findings("canary_cpu", [running, bad])] == ["canary_out_of_band", "pass_rate"]
    assert not list(campaign_findings("ferry", []))


def test_what_the_ledger_shows_is_found(tmp_path: Path) -> None:
    store, now = Store(str(tmp_path)), datetime.datetime.now(datetime.UTC)
    made = write(store, 1, [])
    with summarizing(store, made.spec, "r"):
        sum(range(3_000_000))
    quarantine(made, "smells", "ada")
    ledger = open_ledger([store], price_table(), now.date())
    [held] = gate_findings(ledger)
    assert held.kind == "gate_refusal" and "smells" in held.evidence["why"]
    assert [f.kind for f in budget_findings(ledger, Thresholds(weekly_dollars=Decimal(0)), now)] == ["budget"]
    assert not list(budget_findings(ledger, Thresholds(weekly_dollars=Decimal(1000)), now))
    assert not list(waiver_findings(ledger, now.date()))
    quarantine(made, "clean", "ada", standing=False)
    assert not list(gate_findings(open_ledger([store], price_table(), now.date())))


def test_disks_and_queues_have_thresholds() -> None:
    limits = Thresholds(free_disk_share=0.1, queued_minutes=60)
    assert [f.kind for f in disk_findings("/data", 9, 100, limits)] == ["disk"]
    assert not list(disk_findings("/data", 10, 100, limits))
    assert [f.kind for f in queue_findings({"r": NOW - 2 * HOUR}, NOW, limits)] == ["stuck_queue"]
    assert not list(queue_findings({"r": NOW - HOUR}, NOW, limits))
