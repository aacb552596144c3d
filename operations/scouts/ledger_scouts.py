"""Scouts that need only the ledger (`operations.ledger.schema` has the columns)."""

import datetime
from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from operations.ledger.ledger import Ledger
from operations.scouts.reports import Finding, Look

IDLE_DAYS = 14
"""Days after which a token cache that nothing read is a finding."""
EARLIER_ATTEMPTS = 5
"""Fewer earlier attempts give no median to compare with."""
SLOWER, LEAST_SECONDS = 2.0, 10.0
"""An attempt is slow if it took more than this share of the median, and more seconds than this."""


def unread_caches(ledger: Ledger, now: datetime.datetime) -> Look:
    """Return token caches that no artifact has as an input, older than IDLE_DAYS."""
    oldest = (now - datetime.timedelta(days=IDLE_DAYS)).isoformat()
    caches = ledger.tables["artifacts"].filter(stage="datakit.token_cache")
    readers = ledger.tables["inputs"].select("store", address="parent").unique()
    idle = caches.join(readers, on=["store", "address"], how="anti").filter(pl.col("created") < oldest)
    findings = [
        Finding(
            f"{row['store']}/{row['address']}",
            "low",
            f"nothing has read {row['name']} of {row['created'][:10]} ({row['num_bytes']:,} bytes)",
            "./marin query --question caches-without-readers",
        )
        for row in idle.sort("num_bytes", descending=True).iter_rows(named=True)
    ]
    return Look(tuple(findings), caches.height)


def expired_waivers(ledger: Ledger, today: datetime.date) -> Look:
    """Return waivers past their last day. The gate refuses again what they let through."""
    waivers = ledger.tables["waivers"].filter(refused="")
    findings = [
        Finding(
            f"{row['store']}/{row['address']}",
            "medium",
            f"the waiver of {row['problem']} for {row['artifact']} expired on {row['expires']}",
            f"./marin gate '{row['artifact']}'",
            {"given by": f"{row['who']}: {row['why']}"},
        )
        for row in waivers.filter(pl.col("expires") < today.isoformat()).sort("address").iter_rows(named=True)
    ]
    return Look(tuple(findings), waivers.height)


def unaudited_checkpoints(ledger: Ledger) -> Look:
    """The last checkpoint of each run that no contamination audit has examined. A canary is not evaluated, so it needs none."""
    checkpoints = (
        ledger.tables["checkpoints"]
        .filter(~pl.col("address").str.starts_with("canary/"))
        .sort("step")
        .unique(["store", "run"], keep="last")
    )
    audited = ledger.tables["audits"].select("store", address="checkpoint").unique()
    findings = [
        Finding(
            f"{row['store']}/{row['address']}",
            "medium",
            f"no audit has examined step {row['step']} of {row['run']}",
            "./marin query --question unaudited",
        )
        for row in checkpoints.join(audited, on=["store", "address"], how="anti").sort("run").iter_rows(named=True)
    ]
    return Look(tuple(findings), checkpoints.height)


def flaky_checks(ledger: Ledger) -> Look:
    """Return checks whose outcome for one asset and partition changed at least twice: a repaired fault changes it once.

    It needs Dagster's database. Without the database it examines nothing.
    """
    of = ["asset", "partition", "check_name"]
    outcomes = ledger.tables["checks"].sort("recorded_at").group_by(of, maintain_order=True).agg("passed", "recorded_at")
    findings = []
    for row in outcomes.sort(of).iter_rows(named=True):
        passed = row["passed"]
        changes = sum(before != after for before, after in pairwise(passed))
        if changes >= 2:
            at = row["asset"] + (f"[{row['partition']}]" if row["partition"] else "")
            lines = [f"{when} {'passed' if ok else 'failed'}" for when, ok in zip(row["recorded_at"], passed, strict=True)]
            findings.append(
                Finding(
                    f"{at} {row['check_name']}",
                    "medium",
                    f"{row['check_name']} of {at} changed its outcome {changes} times in {len(passed)} evaluations",
                    './marin query --dagster "select * from checks order by recorded_at"',
                    {"outcomes": "\n".join(lines[-20:])},
                )
            )
    return Look(tuple(findings), outcomes.height)


def slow_stages(ledger: Ledger) -> Look:
    """Return the keys whose last finished attempt took more than twice the median of those before it on the same hardware."""
    done = ledger.tables["attempts"].filter((pl.col("state") == "done") & pl.col("seconds").is_not_null())
    keyed = done.with_columns(key=pl.col("name").str.replace(r"\[.*$", "")).sort("started")
    groups = keyed.group_by("store", "key", "stage", "hardware", maintain_order=True).agg("seconds", "name")
    enough = groups.filter(pl.col("seconds").list.len() > EARLIER_ATTEMPTS)
    return Look(tuple(_slow(enough)), enough.height)


def _slow(groups: pl.DataFrame) -> Iterator[Finding]:
    for row in groups.sort("store", "key", "hardware").iter_rows(named=True):
        *earlier, last = row["seconds"]
        median = float(pl.Series(earlier).median() or 0.0)  # pyrefly: ignore  # polars types the median of any series
        if last > LEAST_SECONDS and last > SLOWER * median:
            yield Finding(
                f"{row['store']}/{row['key']} on {row['hardware']}",
                "low",
                f"{row['name'][-1]} took {last:.0f} s, the median of {len(earlier)} earlier ones is {median:.0f} s",
                "./marin query --question slowest-stages",
                {"seconds": ", ".join(f"{each:.1f}" for each in row["seconds"][-20:])},
            )
