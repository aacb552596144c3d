"""Incidents: a finding that lasts is one incident, from the first time it is seen until it is gone.

    .operations/alerts/incidents.json      open incidents, those closed within KEPT_DAYS, and messages that wait for a channel

Kind and subject identify an incident, so a finding that is seen every ten minutes gives one message.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object, naming

FILE = ".operations/alerts/incidents.json"
KEPT_DAYS = 30
_FORMAT = "incidents/1"

type Kind = Literal[
    "failed_ferry",
    "canary_out_of_band",
    "gate_refusal",
    "stuck_queue",
    "pass_rate",
    "disk",
    "budget",
    "expired_waiver",
    "silent_scout",
    "failing_probe",
]


@dataclass(frozen=True)
class Finding:
    """Something that is broken now. `evidence` is what a person needs to judge it: logs, numbers, last events, by title."""

    kind: Kind
    subject: str
    summary: str
    command: str
    """The command that shows or reproduces it."""
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def incident(self) -> str:
        """16 hex characters; equal for one kind and subject."""
        return identity_digest([self.kind, self.subject])[:16]


@dataclass(frozen=True)
class Incident:
    """`closed` is empty while it is open."""

    id: str
    finding: Finding
    opened: str
    closed: str = ""


@dataclass(frozen=True)
class Change:
    """An incident that was opened or closed."""

    what: Literal["opened", "closed"]
    incident: Incident


@dataclass(frozen=True)
class State:
    """All that alerts remember, in one file, so that no change is lost between two writes.

    `waiting`: changes that each channel has not accepted yet, oldest first. `sent`: when each channel got its last messages.
    """

    incidents: Mapping[str, Incident] = field(default_factory=dict)
    waiting: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    sent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_state(store: Store) -> State:
    """Return the state. Raises: ValueError naming the file if it cannot be read."""
    text = store.storage.read_text(FILE)
    if text is None:
        return State()
    with naming(store.storage.uri(FILE)):
        record = json_object(text, FILE)
        if (form := record.pop("format")) != _FORMAT:
            raise ValueError(f"{FILE} has format {form!r}; this checkout reads {_FORMAT}")
        return from_jsonable(State, record, FILE)


def save_state(store: Store, state: State) -> None:
    """Replace the saved state of incidents."""
    store.storage.replace(FILE, json.dumps({"format": _FORMAT, **asdict(state)}, indent=1, ensure_ascii=False).encode())


def changes(incidents: Mapping[str, Incident], findings: Sequence[Finding], now: datetime.datetime) -> list[Change]:
    """Return new findings, which open incidents, and open incidents without a finding, which close."""
    when = now.isoformat(timespec="seconds")
    present = {finding.incident: finding for finding in findings}
    still = {name for name, incident in incidents.items() if not incident.closed}
    opened = [Change("opened", Incident(name, f, when)) for name, f in sorted(present.items()) if name not in still]
    closed = [Change("closed", replace(incidents[name], closed=when)) for name in sorted(still - present.keys())]
    return [*opened, *closed]


def after(state: State, changed: Sequence[Change], channels: Sequence[str], now: datetime.datetime) -> State:
    """Return the state after some changes, each of which waits for every channel."""
    oldest = (now - datetime.timedelta(days=KEPT_DAYS)).isoformat()
    incidents = {**state.incidents, **{change.incident.id: change.incident for change in changed}}
    kept = {name: each for name, each in incidents.items() if not each.closed or each.closed > oldest}
    waiting = {**state.waiting, **{name: (*state.waiting.get(name, ()), *changed) for name in channels}}
    return State(kept, waiting, state.sent)
