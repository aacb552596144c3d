"""Upkeep of the lab: jobs over assets without partitions, most of them by the clock. All times are UTC."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from jobs.automation import schedules_at_start
from resources.dagster_private import UnresolvedAssetJobDefinition

type Job = UnresolvedAssetJobDefinition


@dataclass(frozen=True)
class Upkeep:
    """A job over some assets, in one process, and the schedule that starts it."""

    job: str
    keys: tuple[str, ...]
    """Asset keys with `/`; one that ends with `/` means every asset below it."""
    schedule: str
    cron: str
    description: str


EVERY = (
    Upkeep("append_log", ("operations/transparency_log",), "daily_transparency_log", "15 5 * * *",
           "Appends manifests and verdicts to the transparency log, at 05:15 UTC."),
    Upkeep("expire_ferries", ("operations/ferry_expiry",), "daily_ferry_expiry", "30 5 * * *",
           "Deletes ferries past their time to live, at 05:30 UTC."),
    Upkeep("compare_lineage", ("operations/lineage_consistency",), "daily_lineage_consistency", "45 5 * * *",
           "Compares manifests, lineage tables and the event log, at 05:45 UTC."),
    Upkeep("report_storage", ("operations/storage_report",), "daily_storage_report", "0 5 * * *",
           "Adds up what the roots hold, by prefix, owner, class and age, at 05:00 UTC."),
    Upkeep("compare_packages", ("operations/dependency_canary",), "weekly_dependency_canary", "0 3 * * 0",
           "Trains the canary under this lock file and the next one, on Sundays at 03:00 UTC."),
    Upkeep("tell_of_incidents", ("operations/alerts",), "alerts", "*/10 * * * *",
           "Looks for what is broken and tells people, every ten minutes."),
    Upkeep("probe_services", ("operations/probes",), "probes", "*/10 * * * *",
           "Sends a small request to each service that the lab needs, every ten minutes."),
    Upkeep("send_traces", ("operations/traces",), "traces", "*/5 * * * *",
           "Sends attempts that have ended as OpenTelemetry spans, every five minutes, where an endpoint is set."),
    Upkeep("publish_site", ("operations/site",), "daily_site", "0 8 * * *",
           "Brings the lab's public site up to date, at 08:00 UTC."),
    Upkeep("scout_night", ("scouts/",), "nightly_scouts", "0 2 * * *",
           "Looks for what rots, one scout after another, at 02:00 UTC; edits nothing."),
    Upkeep("judge_scouts", ("operations/scouts",), "scouts_reported", "0 6 * * *",
           "Whether every scout of the night has reported, at 06:00 UTC."),
)  # fmt: skip
"""To add upkeep, add a row."""


PASS_RATES = "pass_rates"
"""Job that refreshes the pass rate of every campaign."""


def job_over(name: str, keys: Sequence[str], description: str = "") -> Job:
    """Return a job over assets, in one process: an asset that fails does not stop those beside it."""
    whole = [key.split("/") for key in keys if not key.endswith("/")]
    below = [key.removesuffix("/").split("/") for key in keys if key.endswith("/")]
    selection = dg.AssetSelection.key_prefixes(*below) if below else dg.AssetSelection.assets(*whole)
    if below and whole:
        selection = selection | dg.AssetSelection.assets(*whole)
    return dg.define_asset_job(name, selection=selection, executor_def=dg.in_process_executor, description=description)


def pass_rate_job(campaigns: Sequence[str]) -> Job:
    """Refresh the pass rate of every campaign."""
    return job_over(PASS_RATES, [f"operations/{campaign}_pass_rate" for campaign in campaigns])


def upkeep_schedules() -> list[dg.ScheduleDefinition]:
    """Return the schedule of every row, with its job. Without channels, incidents are recorded and no message is sent."""
    return [
        dg.ScheduleDefinition(
            name=upkeep.schedule,
            job=job_over(upkeep.job, upkeep.keys, upkeep.description),
            cron_schedule=upkeep.cron,
            execution_timezone="UTC",
            default_status=schedules_at_start(),
            description=upkeep.description,
        )
        for upkeep in EVERY
    ]
