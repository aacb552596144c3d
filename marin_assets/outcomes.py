"""How the runs of a campaign ended, from the run ledger: passes, broken invariants, machines that died.

It imports Dagster and no module of the lab, because `marin status` waits for it.
"""

import datetime
from dataclasses import dataclass

import dagster as dg

CAMPAIGN_TAG = "marin/campaign"
WINDOW_RUNS = 30
INTERRUPTED = dg.DagsterExecutionInterruptedError.__name__


@dataclass(frozen=True)
class Outcome:
    """How one run of a campaign ended."""

    day: str
    run_id: str
    status: str
    """`passed`, `regression` (a blocking check failed), `infrastructure` (anything else that failed), `running`."""

    cause: str
    ended: str
    seconds: float


def outcomes(instance: dg.DagsterInstance, campaign: str, limit: int = WINDOW_RUNS) -> list[Outcome]:
    """Return the latest runs of a campaign, newest first, and why the failed ones failed."""
    records = instance.get_run_records(dg.RunsFilter(tags={CAMPAIGN_TAG: campaign}), limit=limit)
    return [_outcome(instance, record) for record in records]


def _outcome(instance: dg.DagsterInstance, record: dg.RunRecord) -> Outcome:
    run = record.dagster_run
    status, cause = classify(instance, run)
    ended = datetime.datetime.fromtimestamp(record.end_time, datetime.UTC) if record.end_time else None
    return Outcome(
        day=run.tags.get("dagster/partition", ""),
        run_id=run.run_id,
        status=status,
        cause=cause,
        ended=ended.isoformat(timespec="seconds") if ended else "",
        seconds=round((record.end_time or 0) - (record.start_time or 0), 1) if record.end_time else 0.0,
    )


def classify(instance: dg.DagsterInstance, run: dg.DagsterRun) -> tuple[str, str]:
    """Distinguish a broken promise from a broken machine: the first failed blocking check decides, else the first error."""
    if run.status is dg.DagsterRunStatus.SUCCESS:
        return "passed", ""
    if run.status not in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED):
        return "running", run.status.value
    failures = []
    for entry in instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            if not evaluation.passed and evaluation.blocking:
                return "regression", f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
        elif event.is_step_failure:
            step = str(event.step_key).replace("__", "/")
            failures.append(f"{step}: {_innermost(event.step_failure_data.error)}")
        elif event.is_run_failure and event.message:
            failures.append(event.message)
    return "infrastructure", (failures or [run.status.value])[0][:300]


def _innermost(error) -> str:
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return "no error was recorded"
    return "it was interrupted" if error.cls_name == INTERRUPTED else error.message.strip()
