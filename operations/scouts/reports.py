"""Reports of scouts: findings with a stable id and the day they were first seen, one file for each scout.

    .operations/scouts/<scout>.json      the last report

The file is replaced as a unit. So a killed scout leaves the report of the night before, and `silent` names that scout.
"""

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.names import check_part
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object, naming

FOLDER = ".operations/scouts"
DUE_HOUR = 2
"""UTC hour at which the scouts of a night start."""
PATIENCE = datetime.timedelta(hours=4)
"""After this time a scout that has not reported is silent."""
_FORMAT = "scout_report/1"

type Severity = Literal["low", "medium", "high"]


@dataclass(frozen=True)
class Finding:
    """Something that a person should look at. `evidence`: what the person needs to judge it, by title."""

    subject: str
    """What it is about: a name that is equal on every night."""
    severity: Severity
    summary: str
    command: str
    """The command that shows it."""
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What a scout did in a night: findings, the number of things it examined, and what it could not examine and why."""

    findings: tuple[Finding, ...]
    examined: int
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LastingFinding:
    """A finding of a report. `id` is equal on every night for one scout and subject. `first_seen` is a time in UTC."""

    id: str
    first_seen: str
    finding: Finding


@dataclass(frozen=True)
class Report:
    """The last report of a scout. Times are ISO 8601 in UTC."""

    scout: str
    started: str
    ended: str
    examined: int
    seen: tuple[LastingFinding, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def report_of(scout: str, look: Look, before: Report | None, started: datetime.datetime, ended: datetime.datetime) -> Report:
    """Return the report of a look. A finding that the report before had keeps its first time.

    Raises: ValueError if two findings have one subject, because one would replace the other on the next night.
    """
    subjects = [finding.subject for finding in look.findings]
    if len(set(subjects)) < len(subjects):
        repeated = next(subject for subject in subjects if subjects.count(subject) > 1)
        raise ValueError(f"scout {scout}: two findings have the subject {repeated!r}; give each another subject")
    first = {} if before is None else {lasting.id: lasting.first_seen for lasting in before.seen}
    now = _text(started)
    lasting_findings = []
    for finding in look.findings:
        name = identity_digest([scout, finding.subject])[:16]
        lasting_findings.append(LastingFinding(name, first.get(name, now), finding))
    order = {"high": 0, "medium": 1, "low": 2}
    lasting_findings.sort(key=lambda one: (order[one.finding.severity], one.first_seen, one.finding.subject))
    return Report(scout, now, _text(ended), look.examined, tuple(lasting_findings), dict(look.left_out))


def read_report(store: Store, scout: str) -> Report | None:
    """Return the last report, or None. Raises: ValueError naming a file that cannot be read."""
    place = _place(scout)
    text = store.storage.read_text(place)
    if text is None:
        return None
    with naming(store.storage.uri(place)):
        record = json_object(text, place)
        if (form := record.pop("format", None)) != _FORMAT:
            raise ValueError(f"{place} has format {form!r}; this checkout reads {_FORMAT}")
        return from_jsonable(Report, record, place)


def save_report(store: Store, report: Report) -> None:
    """Replace the last report of its scout."""
    text = json.dumps({"format": _FORMAT, **asdict(report)}, indent=1, ensure_ascii=False)
    store.storage.replace(_place(report.scout), text.encode())


def scouted(store: Store, scout: str, look: Callable[[], Look], now: Callable[[], datetime.datetime]) -> Report:
    """Run a scout and save its report. Raises: what the scout raises; then the last report is kept."""
    started = now()
    looked = look()
    try:
        before = read_report(store, scout)
    except ValueError:  # a broken report must not silence its scout; the new report says that the first times are lost
        before, lost = None, {f"{_place(scout)}": "the report before cannot be read: first times start again today"}
        looked = Look(looked.findings, looked.examined, {**looked.left_out, **lost})
    report = report_of(scout, looked, before, started, now())
    save_report(store, report)
    return report


def silent(store: Store, scouts: Iterable[str], now: datetime.datetime) -> dict[str, str]:
    """Return scout -> why, for each that has not reported since it was last due."""
    due = now - PATIENCE
    due = due.replace(hour=DUE_HOUR, minute=0, second=0, microsecond=0) - datetime.timedelta(days=due.hour < DUE_HOUR)
    why: dict[str, str] = {}
    for scout in scouts:
        try:
            report = read_report(store, scout)
        except ValueError as error:
            why[scout] = str(error)
            continue
        if report is None:
            why[scout] = f"it has never reported; it was due at {_text(due)}"
        elif datetime.datetime.fromisoformat(report.ended) < due:
            why[scout] = f"its last report is of {report.ended}; it was due at {_text(due)}"
    return why


def reports(store: Store, scouts: Sequence[str]) -> list[Report]:
    """Return the last reports that can be read, in the order of the scouts; `silent` names the others."""
    readable = []
    for scout in scouts:
        try:
            report = read_report(store, scout)
        except ValueError:  # `silent` names it
            continue
        if report is not None:
            readable.append(report)
    return readable


def _place(scout: str) -> str:
    return f"{FOLDER}/{check_part(scout, 'a scout')}.json"


def _text(when: datetime.datetime) -> str:
    return when.astimezone(datetime.UTC).isoformat(timespec="seconds")
