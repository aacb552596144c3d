"""Verdicts on an existing artifact: a blocking check failed, or a person does not trust it.

A verdict is a record beside the manifest, `<address>/verdicts/<name>/verdict.json`. A blocking check of Dagster stops only its
own run; the record makes the launch gate stop every later use, from any process. The artifact's bytes and manifest do not
change. A lifted verdict is kept, with `standing` false.
"""

import datetime
import json
import re
from dataclasses import asdict, dataclass
from typing import Literal

from lineage.artifact.store import Artifact, Store

VERDICT_FOLDER = "verdicts"
_VERDICT_FILE = "verdict.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Verdict:
    """`failed`: a blocking check of that name found violations. `quarantined`: somebody took the artifact out of use."""

    name: str
    kind: Literal["failed", "quarantined"]
    why: str
    who: str
    when: str
    standing: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"verdict name {self.name!r} must match {_NAME.pattern}")
        if not self.why.strip() or not self.who.strip():
            raise ValueError(f"verdict {self.name}: say who ({self.who!r}) and why ({self.why!r})")


def record_verdict(artifact: Artifact, verdict: Verdict) -> None:
    """Write a verdict, in place of the last one of that name."""
    address = f"{artifact.spec.address}/{VERDICT_FOLDER}/{verdict.name}/{_VERDICT_FILE}"
    artifact.store.storage.replace(address, json.dumps(asdict(verdict), indent=1, ensure_ascii=False).encode())


def record_check(artifact: Artifact, name: str, violations: list[str], who: str) -> None:
    """Record the result of a blocking check: a failure is written, and a pass lifts an earlier failure; else nothing is
    written."""
    earlier = {verdict.name: verdict for verdict in verdicts(artifact.store, artifact.spec.address)}
    if violations:
        record_verdict(artifact, Verdict(name, "failed", "; ".join(violations[:5]), who, _now()))
    elif name in earlier and earlier[name].standing:
        record_verdict(artifact, Verdict(name, "failed", "passes now", who, _now(), standing=False))


def quarantine(artifact: Artifact, why: str, who: str, *, standing: bool = True) -> None:
    """Take an artifact out of use, or put it back (`standing=False`); nothing is deleted."""
    record_verdict(artifact, Verdict("quarantine", "quarantined", why, who, _now(), standing))


def verdicts(store: Store, address: str) -> list[Verdict]:
    """Return the verdicts on the artifact at an address in name order, including lifted ones."""
    found = store.storage.find(f"{address}/{VERDICT_FOLDER}", _VERDICT_FILE)
    texts = [store.storage.read_text(where) for where in found]
    return [Verdict(**json.loads(text)) for text in texts if text is not None]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
