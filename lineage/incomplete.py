"""The record of a stage that ended with shards missing, and what a waiver lets it do without.

The record lies where the artifact will be, `<address>/incomplete.json`: no manifest, so no artifact, so nobody can read it by
mistake; but whoever asks why it is missing is told which shards failed, of what, and how to run one alone. It goes when the
artifact is committed whole (docs/design/incomplete.md).
"""

import datetime
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from lineage.config import from_jsonable
from lineage.failures import IncompleteError, ShardFailure
from lineage.gate import Finding, GateError, lacking, today, waived
from lineage.spec import ArtifactSpec, InputRef
from lineage.store import Artifact, Store
from lineage.writer import Writer

INCOMPLETE_NAME = "incomplete.json"


@dataclass(frozen=True)
class Incomplete:
    """What an attempt left: `failures` are its quarantined shards."""

    artifact: str
    num_shards: int
    num_finished: int
    failures: tuple[ShardFailure, ...]
    run_id: str
    when: str

    def __str__(self) -> str:
        named = ", ".join(f"{failure.name} ({failure.error})" for failure in self.failures)
        return f"{len(self.failures)} of {self.num_shards} shards failed and are quarantined: {named}"


def record_incomplete(store: Store, spec: ArtifactSpec, error: IncompleteError, run_id: str) -> None:
    """Write the record, over that of an earlier attempt."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = Incomplete(error.artifact, error.num_shards, error.num_finished, error.failures, run_id, when)
    text = json.dumps({"format": "incomplete/1", **asdict(record)}, indent=1, ensure_ascii=False)
    store.storage.replace(f"{spec.address}/{INCOMPLETE_NAME}", text.encode())


def read_incomplete(store: Store, address: str) -> Incomplete | None:
    """The record at an artifact's address, or None where there is none."""
    text = store.storage.read_text(f"{address}/{INCOMPLETE_NAME}")
    if text is None:
        return None
    record = json.loads(text)
    if (found := record.pop("format")) != "incomplete/1":
        raise ValueError(f"{address}/{INCOMPLETE_NAME} has format {found!r}; this checkout reads incomplete/1")
    return from_jsonable(Incomplete, record, INCOMPLETE_NAME)


def clear_incomplete(store: Store, spec: ArtifactSpec) -> None:
    """The artifact is whole now."""
    store.storage.delete(f"{spec.address}/{INCOMPLETE_NAME}")


def incomplete_inputs(artifacts: Iterable[Artifact]) -> list[Finding]:
    """A finding for every artifact that was made without some of its shards."""
    return [
        Finding("incomplete", artifact.ref("input"), lacking(artifact.manifest))
        for artifact in artifacts
        if artifact.manifest.omitted
    ]


def leave_out(store: Store, out: Writer, earlier: Incomplete) -> None:
    """Let a stage do without the shards on record where a waiver says so; the waiver is kept if it comes to that.

    Shards that fail for the first time are not covered: nobody has decided about them yet.
    """
    spec = out.spec
    ref = InputRef("", spec.key, spec.partition, "", spec.address)
    try:
        out.waivers += waived(store, spec.name, [Finding("incomplete", ref, str(earlier))], today())
    except GateError:
        return
    out.may_omit = frozenset(failure.name for failure in earlier.failures)
