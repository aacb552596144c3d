"""What only Dagster's database knows, as tables of the ledger: runs, and every evaluation of a check."""

import datetime
from collections.abc import Mapping

import dagster as dg
import polars as pl

from marin_assets.outcomes import CAMPAIGN_TAG
from operations.ledger.schema import CHECKS, DAGSTER_RUNS


def tables_of_instance() -> Mapping[str, pl.DataFrame]:
    """Return the tables of the instance of this environment."""
    with dg.DagsterInstance.get() as instance:
        return dagster_tables(instance)


def dagster_tables(instance: dg.DagsterInstance) -> Mapping[str, pl.DataFrame]:
    """Return `dagster_runs` and `checks` (`operations.ledger.schema.ONLY_IN_DAGSTER`) of an instance."""
    records = instance.get_run_records()
    runs = [
        (
            record.dagster_run.run_id,
            record.dagster_run.job_name,
            record.dagster_run.status.value,
            record.dagster_run.tags.get(CAMPAIGN_TAG, ""),
            record.dagster_run.tags.get("dagster/partition", ""),
            _time(record.start_time),
            _time(record.end_time),
        )
        for record in records
    ]
    checks = [row for record in records for row in _checks(instance, record.dagster_run.run_id)]
    return {
        "dagster_runs": pl.DataFrame(runs, schema=DAGSTER_RUNS, orient="row"),
        "checks": pl.DataFrame(checks, schema=CHECKS, orient="row"),
    }


def _checks(instance: dg.DagsterInstance, run_id: str) -> list[tuple]:
    rows = []
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        event = entry.dagster_event
        if event is not None:
            done = event.asset_check_evaluation_data
            what = (done.asset_key.to_user_string(), event.partition or "", done.check_name)
            rows.append((*what, done.passed, done.severity.value, run_id, _time(entry.timestamp)))
    return rows


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
