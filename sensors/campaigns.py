"""What follows a ferry or a canary: the canary after a ferry that passed, the pass rates after every outcome.

A campaign's runs are known by their tag, in every code location. A run that the command line made in its own process
has no location, and a sensor that names the jobs it monitors never sees it (Dagster 1.13.27; found with `make ui`,
2026-11-21).
"""

import dagster as dg

from jobs.automation import sensors_at_start
from jobs.campaigns import FERRY
from marin_assets.outcomes import CAMPAIGN_TAG, classify
from resources.dagster_private import UnresolvedAssetJobDefinition

CLOUD_SAFE_CHARS = 300


def canary_after_ferry(canary: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Start the day's canary once the day's ferry has succeeded.

    It looks for the latest ferry that passed, not for the event of its end: a run-status sensor never sees what ended
    before its first tick, so the canary of a first `make ferry` followed by `make ui` never started (found 2026-11-21).
    """

    @dg.sensor(
        name=f"{canary.name}_after_ferry",
        job=canary,
        minimum_interval_seconds=30,
        default_status=sensors_at_start(),
        description="Starts the day's canary when the day's ferry has succeeded.",
    )
    def start(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        wanted = dg.RunsFilter(tags={CAMPAIGN_TAG: FERRY}, statuses=[dg.DagsterRunStatus.SUCCESS])
        passed = context.instance.get_runs(wanted, limit=1)
        if not passed:
            return dg.SensorResult(skip_reason="no ferry has passed yet")
        run_id, day = passed[0].run_id, passed[0].tags.get("dagster/partition")
        if run_id == context.cursor:
            return dg.SensorResult(skip_reason=f"the canary after ferry run {run_id} ({day}) was requested")
        if day is None:
            return dg.SensorResult(skip_reason=f"ferry run {run_id} has no day", cursor=run_id)
        request = dg.RunRequest(run_key=f"{canary.name}:{day}:{run_id}", partition_key=day)
        return dg.SensorResult(run_requests=[request], cursor=run_id)

    return start


def pass_rate_sensors(pass_rates: UnresolvedAssetJobDefinition) -> list[dg.SensorDefinition]:
    """Refresh the pass rates after every outcome; a failure is also classified and logged as an alert."""

    @dg.run_status_sensor(
        name="pass_rate_after_success",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitor_all_code_locations=True,
        request_job=pass_rates,
        default_status=sensors_at_start(),
        description="Refreshes the pass rates after a ferry or canary that passed.",
    )
    def after_success(context: dg.RunStatusSensorContext) -> dg.RunRequest | dg.SkipReason:
        if CAMPAIGN_TAG not in context.dagster_run.tags:
            return dg.SkipReason(f"run {context.dagster_run.run_id} is of no campaign")
        return dg.RunRequest(run_key=f"pass_rate:{context.dagster_run.run_id}")

    @dg.run_failure_sensor(
        name="campaign_failures",
        monitor_all_code_locations=True,
        request_job=pass_rates,
        default_status=sensors_at_start(),
        description="Says why a ferry or canary failed (regression or infrastructure) and refreshes the pass rates.",
    )
    def after_failure(context: dg.RunFailureSensorContext) -> dg.RunRequest | dg.SkipReason:
        run = context.dagster_run
        if CAMPAIGN_TAG not in run.tags:
            return dg.SkipReason(f"run {run.run_id} is of no campaign")
        status, cause = classify(context.instance, run)
        campaign, day = run.tags[CAMPAIGN_TAG], run.tags.get("dagster/partition", "no day")
        context.log.error(f"{campaign} of {day} failed, {status}: {cause}")
        return dg.RunRequest(
            run_key=f"pass_rate:{run.run_id}",
            tags={
                "marin/failure": status,
                "marin/failure_cause": cause[:CLOUD_SAFE_CHARS],
                "marin/failed_run": run.run_id,
            },
        )

    return [after_success, after_failure]
