"""What a message about a failed run carries: its last events, its error, what its checks say, and the end of its log."""

import datetime
import logging
from collections.abc import Sequence

import dagster as dg
import polars as pl

log = logging.getLogger(__name__)

EVENTS = 15
LOG_CHARACTERS = 1_500


def evidence_of_run(instance: dg.DagsterInstance, run_id: str, attempts: pl.DataFrame) -> dict[str, str]:
    """Return the evidence by title. `attempts`: those of the ledger, of which the run's own are listed with their use."""
    entries = instance.all_logs(run_id)
    texts = {
        "checks": "\n".join(_checks(entries)),
        "error": _error(entries),
        "end of the log": _end_of_log(instance, run_id, entries),
        "attempts": "\n".join(_attempts(attempts.filter(run_id=run_id))),
        "last events": "\n".join(_line(entry) for entry in entries[-EVENTS:]),
    }
    return {title: text for title, text in texts.items() if text}


def _line(entry: dg.EventLogEntry) -> str:
    when = datetime.datetime.fromtimestamp(entry.timestamp, datetime.UTC).isoformat(timespec="seconds")
    what = entry.dagster_event.event_type_value if entry.dagster_event else "LOG"
    step = f" {entry.step_key}" if entry.step_key else ""
    return f"{when} {what}{step}: {' '.join((entry.message or entry.user_message).split())[:200]}"


def _checks(entries: Sequence[dg.EventLogEntry]) -> list[str]:
    """Return what each check says that did not pass; its description has the numbers."""
    lines = []
    for entry in entries:
        event = entry.dagster_event
        if event is not None and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            done = event.asset_check_evaluation_data
            if not done.passed:
                lines.append(f"{done.asset_key.to_user_string()} {done.check_name}: {done.description or 'no description'}")
    return lines


def _error(entries: Sequence[dg.EventLogEntry]) -> str:
    errors = [e.dagster_event.step_failure_data.error for e in entries if e.dagster_event and e.dagster_event.is_step_failure]
    return errors[0].to_string() if errors and errors[0] is not None else ""


def _end_of_log(instance: dg.DagsterInstance, run_id: str, entries: Sequence[dg.EventLogEntry]) -> str:
    """Return the end of what the last step that wrote a log has written to standard error."""
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    keys = [e.logs_captured_data.file_key for e in events if e.event_type is dg.DagsterEventType.LOGS_CAPTURED]
    if not keys:
        return ""
    manager = instance.compute_log_manager
    key = manager.build_log_key_for_run(run_id, keys[-1])
    try:
        data = manager.get_log_data(key).stderr
    except OSError as error:
        log.warning("the log of run %s cannot be read: %s", run_id, error)
        return f"the log cannot be read: {type(error).__name__}: {error}"
    return (data or b"").decode(errors="replace")[-LOG_CHARACTERS:]


def _attempts(attempts: pl.DataFrame) -> list[str]:
    lines = []
    for row in attempts.sort("started").tail(EVENTS).iter_rows(named=True):
        use = f"{row['seconds'] or 0:.1f} s, {(row['peak_rss_bytes'] or 0) >> 20} MiB, ${row['dollars'] or 0:.4f}"
        lines.append(f"{row['name']}: {row['state']}, {use} {row['why'][:200]}".strip())
    return lines
