"""The verdict log of a root: numbered, sealed, chained records that are only ever appended.

    .trust/verdicts/00000007.json          one verdict and its subject; no record is ever replaced or deleted
    .trust/verdicts/00000007.<subject>     an empty file that says what record 7 is about, if the record cannot be read

A record holds the sha256 of the text of the record before it, so a record that was edited, replaced or removed is found. Heads
(`Head`) that work records in its manifest show that records were removed at the end. A fault stops what it is about; if that is
unknown it stops everything. docs/design/gate.md says what an attacker can still do, and where signatures go.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Literal

from lineage.artifact.manifest import sealed
from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.signing.sign import sign_record
from lineage.storage.digests import identity_digest

LOG_FOLDER = ".trust/verdicts"
"""Below the store's root; a key part cannot start with a dot, so no artifact lies there."""
HEAD = "verdict_log"
"""The key of a manifest's `extra` under which gated work records the head of the log at its commit."""
_FORMAT = "verdict/2"
_NAME = re.compile(r"(?P<number>[0-9]{8})\.(?:json|(?P<subject>[0-9a-f]{16}))")
_VERDICT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

type Kind = Literal["failed", "quarantined", "revoked", "accepted"]
type Judge = Callable[[str, str], str | None]
"""From the address and the text of a record to the reason why it is not accepted, or None (a signature's policy)."""


@dataclass(frozen=True)
class Subject:
    """The bytes that a verdict is about: every artifact of this key, partition and data version."""

    key: tuple[str, ...]
    partition: str | None
    data_version: str

    @cached_property
    def digest(self) -> str:
        """16 hex characters."""
        return identity_digest([list(self.key), self.partition, self.data_version])[:16]


THE_LOG = Subject((), None, "")
"""The subject of a record about the log itself."""


@dataclass(frozen=True)
class Verdict:
    """`failed`: a blocking check of that name found violations. `quarantined`: somebody took the artifact out of use.
    `revoked`: a waiver does not count any more. `accepted`: a person accepts losses of the log (`Record.accepts`)."""

    name: str
    kind: Kind
    why: str
    who: str
    when: str
    standing: bool = True

    def __post_init__(self) -> None:
        if not _VERDICT_NAME.fullmatch(self.name):
            raise ValueError(f"verdict name {self.name!r} must match {_VERDICT_NAME.pattern}")
        if not self.why.strip() or not self.who.strip():
            raise ValueError(f"verdict {self.name}: say who ({self.who!r}) and why ({self.why!r})")


@dataclass(frozen=True)
class Record:
    """One verdict of the log. `previous` is the sha256 of the text of the record before it; empty for the first."""

    number: int
    previous: str
    previous_subject: str
    subject: Subject
    verdict: Verdict
    accepts: tuple[str, ...] = ()
    """Faults of the log (`Fault.id`) that somebody accepts."""


@dataclass(frozen=True)
class Head:
    """The state of a log: its number of records, and the digests of the first and of the last."""

    count: int = 0
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class Fault:
    """A record that is missing, unreadable or not as it was written."""

    number: int
    detail: str
    subjects: frozenset[str]
    """Digests of the subjects that it may be about; empty: unknown, so it stops everything."""
    state: str = ""
    """The digest that record `number` had when somebody saw it, for a record that was replaced or removed at the end."""

    @property
    def id(self) -> str:
        return f"{self.number}{f':{self.state[:16]}' if self.state else ''}"

    def is_about(self, subject: Subject) -> bool:
        return not self.subjects or subject.digest in self.subjects


@dataclass(frozen=True)
class VerdictLog:
    """The log as it was read. `digests` has the sha256 of each readable record's text, by number."""

    records: tuple[Record, ...]
    digests: Mapping[int, str]
    all_faults: tuple[Fault, ...]

    @cached_property
    def accepted(self) -> frozenset[str]:
        return frozenset(fault for record in self.records for fault in record.accepts)

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that nobody has accepted."""
        return tuple(fault for fault in self.all_faults if fault.id not in self.accepted)

    @cached_property
    def _by_subject(self) -> Mapping[Subject, Mapping[str, Verdict]]:
        verdicts: dict[Subject, dict[str, Verdict]] = {}
        for record in self.records:
            verdicts.setdefault(record.subject, {})[record.verdict.name] = record.verdict
        return verdicts

    def of(self, subject: Subject) -> list[Verdict]:
        """Return the last verdict of each name on some bytes, in name order, including lifted ones."""
        return [verdict for _, verdict in sorted(self._by_subject.get(subject, {}).items())]

    def standing(self, subject: Subject) -> list[Verdict]:
        return [verdict for verdict in self.of(subject) if verdict.standing]

    @property
    def head(self) -> Head:
        count = max(self.digests, default=0)
        return Head(count, self.digests.get(1, ""), self.digests.get(count, ""))

    def fault_against(self, head: Head) -> Fault | None:
        """Return the fault that an earlier head shows: records that are gone, or are others now."""
        if not head.count or self.digests.get(head.count) == head.last:
            return None
        state = "is not there any more" if head.count not in self.digests else "is another now"
        fault = Fault(head.count, f"record {head.count} of the verdict log {state}", frozenset(), head.last)
        return None if fault.id in self.accepted else fault


def read_log(store: Store, judge: Judge | None = None) -> VerdictLog:
    """Read every record and check the chain. A bad record is a fault and its verdict does not count; nothing is raised for it.

    `judge` may refuse further records.
    """
    listed = _listed(store)
    names = [_where(number) for number in sorted(listed)]
    texts = dict(zip(sorted(listed), store.storage.read_each(partial(_text, store), names), strict=True))
    records: dict[int, Record] = {}
    why: dict[int, str] = {}
    for number, text in texts.items():
        parsed = _parse(number, text, judge)
        if isinstance(parsed, Record):
            records[number] = parsed
        else:
            why[number] = parsed
    digests = {number: text_sha256(text) for number, text in texts.items() if text is not None}
    for number in range(1, max(listed, default=0) + 1):
        if number not in listed:
            why.setdefault(number, "is missing")
        after = records.get(number + 1)
        if after is not None and number in records and after.previous != digests[number]:
            why[number] = "is not the one that the next record names"
    faults = []
    for number, reason in sorted(why.items()):
        about = set(listed.get(number, ()))
        if number + 1 in records:
            about.add(records[number + 1].previous_subject)
        if number in records:
            about.add(records[number].subject.digest)
        faults.append(Fault(number, f"record {number} of the verdict log {reason}", frozenset(about)))
    sound = tuple(record for number, record in sorted(records.items()) if number not in why)
    return VerdictLog(sound, digests, tuple(faults))


def read_head(store: Store) -> Head:
    """Return the head of the log by one listing and two reads."""
    last = max(_listed(store), default=0)
    first, text = (_text(store, _where(number)) if last else None for number in (1, last))
    return Head(last, "" if first is None else text_sha256(first), "" if text is None else text_sha256(text))


def append(store: Store, subject: Subject, verdict: Verdict, accepts: Sequence[str] = ()) -> str:
    """Add a verdict to the log and return the record's address. Of two writers at once the second takes the next number."""
    while True:
        listed = _listed(store)
        last = max(listed, default=0)
        text = _text(store, _where(last)) if last else None
        previous = "" if text is None else text_sha256(text)
        before = _parse(last, text, None) if last else ""
        about_last = before.subject.digest if isinstance(before, Record) else next(iter(listed.get(last, ())), "")
        record = Record(last + 1, previous, about_last, subject, verdict, tuple(accepts))
        store.storage.create(f"{LOG_FOLDER}/{last + 1:08d}.{subject.digest}", "")
        signed = sign_record(store.storage, _where(last + 1), record_text(record), "judge")
        if store.storage.create(_where(last + 1), record_text(record)):
            return _where(last + 1)
        if signed is not None:
            store.storage.delete(signed)


def record_text(record: Record) -> str:
    """Return the text of a record with its seal: exactly the bytes that a signature is about."""
    return sealed({"format": _FORMAT, **asdict(record)})


def text_sha256(text: str) -> str:
    """64 hex characters."""
    return hashlib.sha256(text.encode()).hexdigest()


def _where(number: int) -> str:
    return f"{LOG_FOLDER}/{number:08d}.json"


def _text(store: Store, where: str) -> str | None:
    """Return the text of a record, or None if it is gone or no UTF-8."""
    try:
        return store.storage.read_text(where)
    except ValueError:
        return None


def _listed(store: Store) -> dict[int, set[str]]:
    """Return the numbers of records that are there, and the digests of the subjects that the files beside them name."""
    files: dict[int, set[str]] = {}
    beside: dict[int, set[str]] = {}
    for name in store.storage.sizes(LOG_FOLDER):
        match = _NAME.fullmatch(name)
        if match is not None and match["subject"]:
            beside.setdefault(int(match["number"]), set()).add(match["subject"])
        elif match is not None:
            files[int(match["number"])] = set()
    return {number: beside.get(number, set()) for number in files}


def _parse(number: int, text: str | None, judge: Judge | None) -> Record | str:
    """Return a record, or why it does not count."""
    if text is None:
        return "cannot be read"
    try:
        content: dict[str, Any] = json.loads(text)
        seal, form = content.pop("seal"), content.pop("format")
        if form != _FORMAT:
            return f"has format {form!r}; this checkout reads {_FORMAT}"
        record = from_jsonable(Record, content)
        if record_text(record) != text or json.loads(record_text(record))["seal"] != seal:
            return "is not as it was sealed"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"cannot be read ({type(error).__name__}: {str(error)[:120]})"
    if record.number != number:
        return f"says that it is record {record.number}"
    refused = judge(_where(number), text) if judge is not None else None
    return record if refused is None else f"is refused: {refused}"
