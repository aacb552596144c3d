"""What counts as broken, as functions from facts to findings. Facts that only Dagster has come from the shell as records."""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from operations.alerts.incidents import Finding
from operations.ledger.ledger import Ledger
from operations.ledger.prices import total
from operations.probes.outcomes import FAILURES_IN_A_ROW, Health

MIN_PASS_RATE = 0.9


@dataclass(frozen=True)
class CampaignRun:
    """How a run of a campaign ended: `passed`, `regression`, `infrastructure` or `running`."""

    day: str
    run_id: str
    status: str
    cause: str


@dataclass(frozen=True)
class Thresholds:
    """When disk, budget and queue are findings. `weekly_dollars` None: no budget is declared."""

    free_disk_share: float = 0.1
    weekly_dollars: Decimal | None = None
    queued_minutes: float = 60.0


def campaign_findings(
    campaign: str, runs: Sequence[CampaignRun], evidence: Callable[[str], Mapping[str, str]] = lambda run_id: {}
) -> Iterator[Finding]:
    """Yield a finding if the newest ended run failed, or too few of the recent runs passed. `runs`: newest first.

    `evidence`: run id -> what a person needs to judge a failed run, by title.
    """
    ended = [run for run in runs if run.status != "running"]
    if not ended:
        return
    last = ended[0]
    if last.status != "passed":
        kind = "canary_out_of_band" if campaign.startswith("canary") else "failed_ferry"
        recent = "\n".join(f"{run.day} {run.status} {run.cause}" for run in ended[:5])
        bundle = {"cause": last.cause, "run": f"{last.run_id} (in the UI: /runs/{last.run_id})", "last runs": recent}
        bundle |= evidence(last.run_id)
        yield Finding(
            kind, campaign, f"{campaign} of {last.day}: {last.status}: {last.cause}", _again(campaign, last.day), bundle
        )
    rate = sum(run.status == "passed" for run in ended) / len(ended)
    if rate < MIN_PASS_RATE:
        summary = f"{rate:.0%} of the last {len(ended)} runs of {campaign} passed, {MIN_PASS_RATE:.0%} are wanted"
        yield Finding(
            "pass_rate", campaign, summary, "./marin status", {"causes": "\n".join(r.cause for r in ended if r.cause)}
        )


def _again(campaign: str, day: str) -> str:
    """Return the command that runs a campaign's day again."""
    if not campaign.startswith("canary_"):
        return f"./marin ferry --day {day}"
    return f"./marin canary --hardware {campaign.removeprefix('canary_').replace('_', '-')} --day {day}"


def gate_findings(ledger: Ledger) -> Iterator[Finding]:
    """Yield artifacts that the gate refuses because a blocking check failed or a person quarantined them."""
    verdicts = ledger.tables["verdicts"].sort("number")
    last = verdicts.unique(["store", "name", "data_version", "verdict"], keep="last").filter("standing")
    for row in last.filter(pl.col("kind").is_in(["failed", "quarantined"])).sort("number").iter_rows(named=True):
        subject = f"{row['name']} {row['data_version'][:8]} {row['verdict']}"
        evidence = {"why": row["why"], "by": f"{row['who']} at {row['recorded_at']}"}
        yield Finding("gate_refusal", subject, f"{row['name']} is {row['kind']}", f"./marin gate '{row['name']}'", evidence)


def waiver_findings(ledger: Ledger, today: datetime.date) -> Iterator[Finding]:
    """Yield waivers that have expired while their problem still exists."""
    rows = ledger.tables["waivers"].filter((pl.col("refused") == "") & (pl.col("expires") < today.isoformat()))
    for row in rows.sort("address").iter_rows(named=True):
        evidence = {"why it was given": f"{row['who']}: {row['why']}"}
        summary = f"the waiver of {row['problem']} for {row['artifact']} expired on {row['expires']}"
        yield Finding("expired_waiver", row["address"], summary, f"./marin gate '{row['artifact']}'", evidence)


def budget_findings(ledger: Ledger, thresholds: Thresholds, now: datetime.datetime) -> Iterator[Finding]:
    """Yield a finding if the attempts of the last seven days cost more than the declared budget. It names unknown costs."""
    if thresholds.weekly_dollars is None:
        return
    since = (now - datetime.timedelta(days=7)).isoformat()
    week = ledger.tables["attempts"].filter(pl.col("started") >= since)
    spent = total(week["dollars"].drop_nulls().to_list()) or Decimal(0)
    if spent > thresholds.weekly_dollars:
        unknown = "\n".join(f"not priced: {why}" for why in week["unpriced"].unique().sort() if why)
        summary = f"seven days cost ${spent:.2f}, the budget is ${thresholds.weekly_dollars}"
        yield Finding("budget", "week", summary, "./marin query --question spending-by-user", {"unknown": unknown})


def disk_findings(folder: str, free: int, whole: int, thresholds: Thresholds) -> Iterator[Finding]:
    """Too little of a disk is free. Bytes."""
    if whole and free / whole < thresholds.free_disk_share:
        summary = f"{free / whole:.1%} of the disk of {folder} is free ({free:,} bytes)"
        yield Finding("disk", folder, summary, "./marin query --question storage-by-prefix", {})


def queue_findings(
    queued: Mapping[str, datetime.datetime], now: datetime.datetime, thresholds: Thresholds
) -> Iterator[Finding]:
    """Yield runs that wait for longer than they should. `queued`: run -> since when."""
    limit = datetime.timedelta(minutes=thresholds.queued_minutes)
    stuck = sorted((since, run) for run, since in queued.items() if now - since > limit)
    if stuck:
        listed = "\n".join(f"{run} since {since.isoformat(timespec='minutes')}" for since, run in stuck[:20])
        summary = f"{len(stuck)} runs wait for more than {thresholds.queued_minutes:g} minutes"
        yield Finding("stuck_queue", "queue", summary, "./marin status", {"runs": listed})


def scout_findings(silent: Mapping[str, str]) -> Iterator[Finding]:
    """Scouts that have not reported since they were last due (`operations.scouts.reports.silent`). `silent`: scout -> why."""
    for scout, why in silent.items():
        yield Finding("silent_scout", scout, f"the scout {scout} is silent: {why}", f"./marin materialize scouts/{scout}", {})


def probe_findings(healths: Sequence[Health]) -> Iterator[Finding]:
    """Yield services whose last probes all failed."""
    for health in healths:
        if health.broken:
            ratio = f"{health.success_ratio:.0%} of the last day's succeeded"
            summary = f"the last {FAILURES_IN_A_ROW} probes of {health.probe} failed; {ratio}"
            command = "./marin materialize operations/probes"
            yield Finding("failing_probe", health.probe, summary, command, {"last error": health.last_error})
