"""Verdicts on existing artifacts: a blocking check failed, or a person does not trust it.

A verdict holds for bytes: for every artifact of the same key, partition and data version, wherever it lies in the root. A
blocking check of Dagster stops only its own run; the record makes the launch gate stop every later use, from any process. The
artifact and its manifest do not change. Verdicts are records of the root's verdict log (`lineage.trust.verdict_log`), which
grows and is never edited: a verdict is lifted by a later one of the same name with `standing` false.
"""

import datetime
from collections.abc import Sequence

from lineage.artifact.spec import InputRef
from lineage.artifact.store import Artifact, Store
from lineage.trust.verdict_log import THE_LOG, Subject, Verdict, append, read_log

QUARANTINE = "quarantine"
REVOCATION = "revocation"


def subject_of(artifact: Artifact) -> Subject:
    """Return the bytes that a verdict on an artifact is about."""
    return Subject(artifact.spec.key, artifact.spec.partition, artifact.data_version)


def subject_of_ref(ref: InputRef) -> Subject:
    """Return the bytes that an input refers to."""
    return Subject(ref.key, ref.partition, ref.data_version)


def record_verdict(artifact: Artifact, verdict: Verdict) -> None:
    """Append a verdict on an artifact's bytes; it replaces an earlier one of its name in force, not in the log."""
    append(artifact.store, subject_of(artifact), verdict)


def record_check(artifact: Artifact, name: str, violations: list[str], who: str) -> None:
    """Record the result of a blocking check: a failure is written, and a pass lifts an earlier failure; else nothing is
    written."""
    earlier = {verdict.name: verdict for verdict in verdicts(artifact)}
    if violations:
        record_verdict(artifact, Verdict(name, "failed", "; ".join(violations[:5]), who, _now()))
    elif name in earlier and earlier[name].standing:
        record_verdict(artifact, Verdict(name, "failed", "passes now", who, _now(), standing=False))


def quarantine(artifact: Artifact, why: str, who: str, *, standing: bool = True) -> None:
    """Take an artifact's bytes out of use, or put them back (`standing=False`); nothing is deleted."""
    record_verdict(artifact, Verdict(QUARANTINE, "quarantined", why, who, _now(), standing))


def revoke(waiver: Artifact, why: str, who: str, *, standing: bool = True) -> None:
    """End a waiver before its day, or let it count again (`standing=False`)."""
    record_verdict(waiver, Verdict(REVOCATION, "revoked", why, who, _now(), standing))


def accept_losses(store: Store, faults: Sequence[str], why: str, who: str) -> None:
    """Record that a person knows of faults of the verdict log (`Fault.id`) and accepts them; they stop nothing any more."""
    append(store, THE_LOG, Verdict("accepted", "accepted", why, who, _now()), faults)


def verdicts(artifact: Artifact) -> list[Verdict]:
    """Return the last verdict of each name on an artifact's bytes in name order, including lifted ones."""
    return read_log(artifact.store).of(subject_of(artifact))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
