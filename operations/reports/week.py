"""The week of the lab as a record: runs, spending, campaigns, forecasts, contamination, storage, waivers, incidents.

A week begins on Monday, 00:00 UTC. All sections except `campaigns` come from the stores. Without Dagster's database `campaigns`
is None, and `only_in_dagster` names it.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operations.alerts.conditions import CampaignRun
from operations.alerts.incidents import Incident
from operations.ledger.database import opened, query
from operations.ledger.ledger import Ledger

DAYS = datetime.timedelta(days=7)
ONLY_IN_DAGSTER = ("campaigns",)

type Row = dict[str, Any]

SECTIONS: Mapping[str, str] = {
    "runs": """
        WITH bits AS (SELECT store, checkpoint, min(value) AS bpb FROM results
                      WHERE metric LIKE '%bits_per_byte' GROUP BY ALL),
        used AS (SELECT store, process, string_agg(DISTINCT hardware, ', ') AS hardware, sum(seconds) / 3600 AS hours
                 FROM attempts GROUP BY ALL)
        SELECT c.run || CASE WHEN a.partition = '' OR a.partition LIKE 'step-%' THEN '' ELSE ' of ' || a.partition END AS run,
               a.owner AS "user", u.hardware, round(u.hours, 3) AS hours, c.model_flops, c.hardware_flops, c.mfu,
               c.loss_nats AS loss, b.bpb, p.dollars, p.failed_attempts AS failed, p.unpriced
        FROM checkpoints c JOIN artifacts a USING (store, address) JOIN processes p USING (store, process)
        JOIN used u USING (store, process) LEFT JOIN bits b ON b.store = a.store AND b.checkpoint = a.address
        WHERE a.created >= $1 AND a.created < $2
        QUALIFY row_number() OVER (PARTITION BY a.store, a.process ORDER BY c.step DESC) = 1
        ORDER BY p.dollars DESC NULLS FIRST, run""",
    "spending": """
        SELECT owner, hardware, count(*) AS attempts, sum(dollars) AS dollars, count(*) FILTER (dollars IS NULL) AS unpriced
        FROM attempts WHERE started >= $1 AND started < $2 GROUP BY ALL ORDER BY dollars DESC NULLS FIRST, owner, hardware""",
    "forecasts": """
        SELECT f.target, f.task, f.metric, f.point, f.low_90, f.high_90, v.measured, v.outcome
        FROM forecast_verdicts v JOIN forecasts f ON f.store = v.store AND f.address = v.forecast
        WHERE v.judged >= $1 AND v.judged < $2 ORDER BY ALL""",
    "contamination": """
        SELECT c.run, c.step, d.verdict FROM audits d JOIN artifacts a USING (store, address)
        JOIN checkpoints c ON c.store = d.store AND c.address = d.checkpoint
        WHERE a.created >= $1 AND a.created < $2 ORDER BY ALL""",
    "storage": """
        SELECT store, prefix, count(*) FILTER (created >= $1) AS new_artifacts,
               sum(num_bytes) FILTER (created >= $1) AS new_bytes, sum(num_bytes) AS bytes
        FROM artifacts WHERE created < $2 GROUP BY ALL ORDER BY bytes DESC, prefix""",
    "waivers": """
        SELECT problem, artifact, target, who, why, expires FROM waivers WHERE created >= $1 AND created < $2 ORDER BY ALL""",
    "verdicts": """
        SELECT name, verdict, kind, standing, why, who FROM verdicts
        WHERE recorded_at >= $1 AND recorded_at < $2 ORDER BY number""",
}


@dataclass(frozen=True)
class Week:
    """`sections` has the rows of each section by name, in the order in which they are shown."""

    monday: str
    sections: Mapping[str, Sequence[Row]]
    only_in_dagster: tuple[str, ...]
    unreadable: Mapping[str, str]


def week_of(
    ledger: Ledger,
    incidents: Sequence[Incident],
    campaigns: Mapping[str, Sequence[CampaignRun]] | None,
    monday: datetime.date,
) -> Week:
    """Return the week that begins on a Monday. Raises: ValueError for another day."""
    if monday.weekday() != 0:
        raise ValueError(f"a week begins on Monday; {monday} is a {monday:%A}")
    start = datetime.datetime.combine(monday, datetime.time(), datetime.UTC)
    bounds = [moment.isoformat(timespec="seconds") for moment in (start, start + DAYS)]
    with opened(ledger) as connection:
        sections: dict[str, Sequence[Row]] = {
            name: query(connection, sql.replace("$1", f"'{bounds[0]}'").replace("$2", f"'{bounds[1]}'")).to_dicts()
            for name, sql in SECTIONS.items()
        }
    sections["incidents"] = [
        {"kind": i.finding.kind, "subject": i.finding.subject, "opened": i.opened, "closed": i.closed or "open"}
        for i in incidents
        if bounds[0] <= i.opened < bounds[1] or bounds[0] <= i.closed < bounds[1]
    ]
    if campaigns is not None:
        sections["campaigns"] = [_rate(name, runs, monday) for name, runs in campaigns.items()]
    return Week(monday.isoformat(), sections, () if campaigns is not None else ONLY_IN_DAGSTER, ledger.unreadable)


def _rate(campaign: str, runs: Sequence[CampaignRun], monday: datetime.date) -> Row:
    days = {(monday + datetime.timedelta(days=number)).isoformat() for number in range(7)}
    ended = [run for run in runs if run.day in days and run.status != "running"]
    passed = sum(run.status == "passed" for run in ended)
    causes = "; ".join(sorted({run.cause for run in ended if run.cause}))
    rate = passed / len(ended) if ended else None
    return {"campaign": campaign, "runs": len(ended), "passed": passed, "rate": rate, "causes": causes}
