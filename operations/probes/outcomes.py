"""Outcomes of probes: one file for each UTC day, which is replaced as a unit.

    .operations/probes/2026-11-25.jsonl      a line for each outcome

One process writes them (the job `probe_services` runs in one process, one run at a time).
"""

import datetime
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.strangers import json_object, naming

FOLDER = ".operations/probes"
MAX_WHY = 500
FAILURES_IN_A_ROW = 3
"""A probe that failed this often in a row is an incident. Fewer failures are noise of the network."""

type Probe = Callable[[], None]
"""Sends one request. Raises: any exception if the service did not do what it should."""


@dataclass(frozen=True)
class Outcome:
    """One probe. `at`: when it started, ISO 8601 in UTC. `seconds`: until its answer or its error. `why`: the error."""

    probe: str
    at: str
    ok: bool
    seconds: float
    why: str = ""


@dataclass(frozen=True)
class Health:
    """Outcomes of one probe in a period. Seconds are those of the outcomes that are ok; None if there is none."""

    probe: str
    times: int
    ok: int
    median_seconds: float | None
    p95_seconds: float | None
    broken: bool
    """The last `FAILURES_IN_A_ROW` outcomes failed."""
    last_error: str
    """Time and error of the last failure; empty if there is none."""

    @property
    def success_ratio(self) -> float:
        return self.ok / self.times


def send(probes: Mapping[str, Probe], now: Callable[[], datetime.datetime]) -> list[Outcome]:
    """Send every probe once, one after another. An error of a probe is its outcome."""
    outcomes = []
    for name, probe in probes.items():
        at, started = _text(now()), time.perf_counter()
        try:
            probe()
            why = ""
        except Exception as error:  # the outcome is the record of it
            why = f"{type(error).__name__}: {error}"[:MAX_WHY]
        outcomes.append(Outcome(name, at, not why, round(time.perf_counter() - started, 4), why))
    return outcomes


def record(store: Store, outcomes: Sequence[Outcome]) -> None:
    """Append outcomes to the files of their days. Raises: ValueError naming a file that cannot be read."""
    by_day: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_day.setdefault(outcome.at[:10], []).append(outcome)
    for day, fresh in by_day.items():
        lines = [json.dumps(asdict(outcome), ensure_ascii=False) for outcome in [*of_day(store, day), *fresh]]
        store.storage.replace(_place(day), ("\n".join(lines) + "\n").encode())


def of_day(store: Store, day: str) -> list[Outcome]:
    """Return the outcomes of a UTC day (YYYY-MM-DD), oldest first. Raises: ValueError naming a file that cannot be read."""
    place = _place(day)
    text = store.storage.read_text(place)
    if text is None:
        return []
    with naming(store.storage.uri(place)):
        return [from_jsonable(Outcome, json_object(line, place), place) for line in text.splitlines()]


def probe_files(store: Store, oldest: str) -> list[str]:
    """Return the names of the files from a UTC day on, oldest first. A file with any other name is left out."""
    names = (f"{FOLDER}/{name}" for name in store.storage.records(FOLDER))
    return [name for name in names if name.endswith(".jsonl") and name >= _place(oldest)]


def since(store: Store, start: datetime.datetime, now: datetime.datetime) -> list[Outcome]:
    """Return the outcomes between two times, oldest first. Raises: ValueError naming a file that cannot be read."""
    first = start.astimezone(datetime.UTC)
    days = (now.astimezone(datetime.UTC).date() - first.date()).days
    dates = [(first.date() + datetime.timedelta(days=each)).isoformat() for each in range(days + 1)]
    return [outcome for day in dates for outcome in of_day(store, day) if _text(first) <= outcome.at <= _text(now)]


def health(outcomes: Sequence[Outcome]) -> list[Health]:
    """Return the health of each probe, by name. `outcomes`: oldest first."""
    by_probe: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_probe.setdefault(outcome.probe, []).append(outcome)
    return [_health(name, by_probe[name]) for name in sorted(by_probe)]


def _health(name: str, outcomes: Sequence[Outcome]) -> Health:
    seconds = sorted(outcome.seconds for outcome in outcomes if outcome.ok)
    failures = [outcome for outcome in outcomes if not outcome.ok]
    last = outcomes[-FAILURES_IN_A_ROW:]
    return Health(
        probe=name,
        times=len(outcomes),
        ok=len(seconds),
        median_seconds=statistics.median(seconds) if seconds else None,
        p95_seconds=seconds[-(-95 * len(seconds) // 100) - 1] if seconds else None,
        broken=len(last) == FAILURES_IN_A_ROW and not any(outcome.ok for outcome in last),
        last_error=f"{failures[-1].at}: {failures[-1].why}" if failures else "",
    )


def _place(day: str) -> str:
    datetime.date.fromisoformat(day)
    return f"{FOLDER}/{day}.jsonl"


def _text(when: datetime.datetime) -> str:
    return when.astimezone(datetime.UTC).isoformat(timespec="seconds")
