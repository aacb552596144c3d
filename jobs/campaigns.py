"""The ferry, the canary, the evaluation of checkpoints, pass rates, expiry and consistency, as jobs; the daily schedules."""

import dagster as dg

from marin_assets.operations import CAMPAIGN_TAG
from partitions.axes import DAY_FORMAT
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.lab import PRIORITY_TAG

FERRY_JOB = "smoke_ferry"
MAX_SECONDS = "3600"
EVALUATION_TAG = "marin/evaluation"
"""Tag of every run that makes the result of an evaluation."""


def ferry_job() -> UnresolvedAssetJobDefinition:
    """Every asset under `ferry/` for one day, in one process: a step costs 20-50 ms there and 1 s as a process."""
    return dg.define_asset_job(
        FERRY_JOB,
        selection=dg.AssetSelection.key_prefixes(["ferry"]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: "ferry", "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description="The daily smoke ferry: the whole graph, end to end, on real text.",
    )


def canary_job(hardware: str) -> UnresolvedAssetJobDefinition:
    """The day's canary run and its verdict. Its fixed data is canonical, and the first run that needs it makes it."""
    return dg.define_asset_job(
        f"canary_{hardware}",
        selection=dg.AssetSelection.assets(["canary", hardware, "checkpoint"], ["canary", hardware]),
        executor_def=dg.in_process_executor,
        tags={CAMPAIGN_TAG: f"canary_{hardware}", "dagster/max_runtime": MAX_SECONDS, PRIORITY_TAG: "production"},
        description=f"The day's fixed training run on {hardware}: loss in its band, throughput near its median.",
    )


def pass_rate_job() -> UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        "pass_rates",
        selection=dg.AssetSelection.assets(["operations", "ferry_pass_rate"], ["operations", "canary_cpu_pass_rate"]),
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


def eval_job(run: str) -> UnresolvedAssetJobDefinition:
    """One task at one saved step."""
    return dg.define_asset_job(
        f"evaluate_{run}",
        selection=dg.AssetSelection.assets(["runs", run, "eval_result"]),
        executor_def=dg.in_process_executor,
        tags={"marin/run": run, EVALUATION_TAG: "yes"},
    )


def leaderboard_job() -> UnresolvedAssetJobDefinition:
    """The leaderboard over every result."""
    return dg.define_asset_job(
        "rank_models",
        selection=dg.AssetSelection.assets(["leaderboard"]),
        executor_def=dg.in_process_executor,
    )


def export_job(run: str) -> UnresolvedAssetJobDefinition:
    """The Hugging Face export of one saved step, and its check."""
    return dg.define_asset_job(
        f"export_{run}",
        selection=dg.AssetSelection.assets(["runs", run, "hf_model"], ["runs", run, "hf_canary"]),
        executor_def=dg.in_process_executor,
        tags={"marin/run": run},
    )


def audit_job(run: str) -> UnresolvedAssetJobDefinition:
    """The contamination audit of one saved step, with the scores that it compares."""
    return dg.define_asset_job(
        f"audit_{run}",
        selection=dg.AssetSelection.assets(["runs", run, "contamination_scores"], ["runs", run, "contamination_audit"]),
        executor_def=dg.in_process_executor,
        tags={"marin/run": run},
    )


def schedules(
    ferry: UnresolvedAssetJobDefinition, expiry: UnresolvedAssetJobDefinition, consistency: UnresolvedAssetJobDefinition
) -> list[dg.ScheduleDefinition]:
    """Return the daily schedules, in UTC: expiry at 05:30, lineage comparison at 05:45, the ferry at 06:30."""

    @dg.schedule(
        name="daily_smoke_ferry",
        job=ferry,
        cron_schedule="30 6 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="The smoke ferry of the day, at 06:30 UTC.",
    )
    def daily_smoke_ferry(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        day = context.scheduled_execution_time.strftime(DAY_FORMAT)
        return dg.RunRequest(run_key=f"ferry:{day}", partition_key=day)

    return [
        daily_smoke_ferry,
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
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
