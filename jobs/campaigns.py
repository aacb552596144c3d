"""The ferry, the canaries and the weekly report as jobs, with the schedules that have a partition for each day or week.

A run has no job of its own: one sensor requests the evaluations, audits and exports of all runs by asset
(sensors/checkpoints.py).
"""

import datetime

import dagster as dg

from jobs.automation import schedules_at_start
from jobs.upkeep import job_over
from marin_assets.outcomes import CAMPAIGN_TAG
from partitions.axes import DAY_FORMAT
from recipes.canary import Canary
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.lab import PRIORITY_TAG

FERRY = "ferry"
"""Value of the campaign tag on a ferry's runs, and the prefix of its keys."""
FERRY_JOB = "smoke_ferry"
MAX_SECONDS = "3600"


def ferry_job() -> UnresolvedAssetJobDefinition:
    """Every asset under `ferry/` for one day, in one process: a step takes 20-50 ms there and 1 s as a process."""
    return dg.define_asset_job(
        FERRY_JOB,
        selection=dg.AssetSelection.key_prefixes([FERRY]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: FERRY, "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description="The daily smoke ferry: the whole graph, end to end, on real text.",
    )


def canary_job(canary: Canary) -> UnresolvedAssetJobDefinition:
    """The day's canary run and its verdict. Its fixed data is canonical, and the first run that needs it makes it."""
    return dg.define_asset_job(
        canary.campaign,
        selection=dg.AssetSelection.assets(["canary", canary.hardware, "checkpoint"], ["canary", canary.hardware]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: canary.campaign, "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description=f"The day's fixed training run on {canary.hardware}: loss in its band, throughput near its median.",
    )


def weekly_schedule() -> dg.ScheduleDefinition:
    """The report of the week that has ended, on Mondays at 07:00 UTC."""
    job = job_over("report_week", ["operations/weekly_report"])

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


def ferry_schedule(ferry: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """The ferry of the day, at 06:30 UTC."""

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

    return daily_smoke_ferry
