"""The ferry, the canaries, the leaderboard, pass rates, expiry and consistency, as jobs; the daily schedules.

A run has no job of its own: one sensor requests the evaluations, audits and exports of all runs by asset
(sensors/checkpoints.py).
"""

import datetime
from collections.abc import Sequence

import dagster as dg

from jobs.automation import schedules_at_start
from marin_assets.outcomes import CAMPAIGN_TAG
from partitions.axes import DAY_FORMAT
from recipes.canary import CanaryBand
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.lab import PRIORITY_TAG

FERRY = "ferry"
"""Value of the campaign tag on a ferry's runs, and the prefix of its keys."""
FERRY_JOB = "smoke_ferry"
MAX_SECONDS = "3600"
EVALUATION_TAG = "marin/evaluation"
"""Tag of every run that makes the result of an evaluation."""


def ferry_job() -> UnresolvedAssetJobDefinition:
    """Every asset under `ferry/` for one day, in one process: a step takes 20-50 ms there and 1 s as a process."""
    return dg.define_asset_job(
        FERRY_JOB,
        selection=dg.AssetSelection.key_prefixes([FERRY]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: FERRY, "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description="The daily smoke ferry: the whole graph, end to end, on real text.",
    )


def canary_job(band: CanaryBand) -> UnresolvedAssetJobDefinition:
    """The day's canary run and its verdict. Its fixed data is canonical, and the first run that needs it makes it."""
    return dg.define_asset_job(
        band.campaign,
        selection=dg.AssetSelection.assets(["canary", band.hardware, "checkpoint"], ["canary", band.hardware]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: band.campaign, "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description=f"The day's fixed training run on {band.hardware}: loss in its band, throughput near its median.",
    )


def pass_rate_job(campaigns: Sequence[str]) -> UnresolvedAssetJobDefinition:
    """Refresh the pass rate of every campaign."""
    return dg.define_asset_job(
        "pass_rates",
        selection=dg.AssetSelection.assets(*(["operations", f"{campaign}_pass_rate"] for campaign in campaigns)),
        executor_def=dg.in_process_executor,
    )


def expiry_job() -> UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        "expire_ferries",
        selection=dg.AssetSelection.assets(["operations", "ferry_expiry"]),
        executor_def=dg.in_process_executor,
    )


def consistency_job() -> UnresolvedAssetJobDefinition:
    """Compare manifests, lineage tables and the event log."""
    return dg.define_asset_job(
        "compare_lineage",
        selection=dg.AssetSelection.assets(["operations", "lineage_consistency"]),
        executor_def=dg.in_process_executor,
    )


def leaderboard_job() -> UnresolvedAssetJobDefinition:
    """The leaderboard over every result."""
    return dg.define_asset_job(
        "rank_models",
        selection=dg.AssetSelection.assets(["leaderboard"]),
        executor_def=dg.in_process_executor,
    )


def log_job() -> UnresolvedAssetJobDefinition:
    """Append manifests and verdicts to the transparency log."""
    return dg.define_asset_job(
        "append_log",
        selection=dg.AssetSelection.assets(["operations", "transparency_log"]),
        executor_def=dg.in_process_executor,
    )


def alert_job() -> UnresolvedAssetJobDefinition:
    """Look for what is broken and tell people."""
    return dg.define_asset_job(
        "tell_of_incidents",
        selection=dg.AssetSelection.assets(["operations", "alerts"]),
        executor_def=dg.in_process_executor,
    )


def alert_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Look for incidents every ten minutes. Without channels they are recorded and no message is sent."""
    return dg.ScheduleDefinition(
        name="alerts",
        job=job,
        cron_schedule="*/10 * * * *",
        execution_timezone="UTC",
        default_status=schedules_at_start(),
        description="Looks for what is broken and tells people, every ten minutes.",
    )


def scout_job() -> UnresolvedAssetJobDefinition:
    """All scouts, one after another; one that fails does not stop the others."""
    return dg.define_asset_job(
        "scout_night",
        selection=dg.AssetSelection.groups("operations") & dg.AssetSelection.key_prefixes(["scouts"]),
        executor_def=dg.in_process_executor,
    )


def scout_schedules(scouts: UnresolvedAssetJobDefinition) -> list[dg.ScheduleDefinition]:
    """Scouts at 02:00 UTC, and the judgement that every one has reported, at 06:00."""
    judgement = dg.define_asset_job(
        "judge_scouts", selection=dg.AssetSelection.assets(["operations", "scouts"]), executor_def=dg.in_process_executor
    )
    return [
        dg.ScheduleDefinition(
            name="nightly_scouts",
            job=scouts,
            cron_schedule="0 2 * * *",
            execution_timezone="UTC",
            default_status=schedules_at_start(),
            description="Looks for what rots, at 02:00 UTC; edits nothing.",
        ),
        dg.ScheduleDefinition(
            name="scouts_reported",
            job=judgement,
            cron_schedule="0 6 * * *",
            execution_timezone="UTC",
            default_status=schedules_at_start(),
            description="Whether every scout of the night has reported, at 06:00 UTC.",
        ),
    ]


def weekly_schedule() -> dg.ScheduleDefinition:
    """The report of the week that has ended, on Mondays at 07:00 UTC."""
    job = dg.define_asset_job(
        "report_week",
        selection=dg.AssetSelection.assets(["operations", "weekly_report"]),
        executor_def=dg.in_process_executor,
    )

    @dg.schedule(
        name="weekly_report",
        job=job,
        cron_schedule="0 7 * * 1",
        execution_timezone="UTC",
        default_status=schedules_at_start(),
        description="The report of the week that has ended, on Mondays at 07:00 UTC.",
    )
    def weekly_report(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        monday = (context.scheduled_execution_time - datetime.timedelta(days=7)).strftime(DAY_FORMAT)
        return dg.RunRequest(run_key=f"week:{monday}", partition_key=monday)

    return weekly_report


def schedules(
    ferry: UnresolvedAssetJobDefinition,
    expiry: UnresolvedAssetJobDefinition,
    consistency: UnresolvedAssetJobDefinition,
    log: UnresolvedAssetJobDefinition,
) -> list[dg.ScheduleDefinition]:
    """Return the daily schedules, in UTC: log at 05:15, expiry 05:30, lineage comparison 05:45, the ferry 06:30."""

    @dg.schedule(
        name="daily_smoke_ferry",
        job=ferry,
        cron_schedule="30 6 * * *",
        execution_timezone="UTC",
        default_status=schedules_at_start(),
        description="The smoke ferry of the day, at 06:30 UTC.",
    )
    def daily_smoke_ferry(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        day = context.scheduled_execution_time.strftime(DAY_FORMAT)
        return dg.RunRequest(run_key=f"ferry:{day}", partition_key=day)

    return [
        daily_smoke_ferry,
        _daily("daily_transparency_log", log, 15, "Appends manifests and verdicts to the transparency log, at 05:15 UTC."),
        _daily("daily_ferry_expiry", expiry, 30, "Deletes ferries past their time to live, at 05:30 UTC."),
        _daily(
            "daily_lineage_consistency", consistency, 45, "Compares manifests, lineage tables and the event log, at 05:45 UTC."
        ),
    ]


def _daily(name: str, job: UnresolvedAssetJobDefinition, minute: int, description: str) -> dg.ScheduleDefinition:
    """Return a daily schedule at a minute after five UTC, before the ferry starts."""
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=f"{minute} 5 * * *",
        execution_timezone="UTC",
        default_status=schedules_at_start(),
        description=description,
    )
