"""Evaluate the automation conditions of assets, which say on each asset's page when it is made by itself."""

import dagster as dg

from jobs.automation import sensors_at_start


def condition_sensor(interval_seconds: int = 60) -> dg.AutomationConditionSensorDefinition:
    """Return the sensor of every asset that has an automation condition: today the leaderboard and the page of verdicts.

    Without it Dagster adds one of its own, which `MARIN_AUTOMATION` does not switch on.
    """
    return dg.AutomationConditionSensorDefinition(
        name="automation_conditions",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=interval_seconds,
        default_status=sensors_at_start(),
        description="Makes what has an automation condition: the leaderboard and the page of verdicts, after their inputs.",
    )
