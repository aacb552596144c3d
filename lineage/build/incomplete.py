"""The record of a stage that ended with shards missing, and the shards that a waiver allows to be missing.

The record is `<address>/incomplete.json`, where the artifact will be. There is no manifest, so nobody can read the artifact by
mistake. The record says which shards failed, why, and how to run one alone. It is deleted when the artifact is committed
complete (docs/design/incomplete.md).
"""

import datetime
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Artifact, Store
from lineage.config import from_jsonable
from lineage.shards.failures import IncompleteError, ShardFailure
from lineage.trust.gate import Finding, GateError, apply_waivers, describe_omitted, utc_today
from lineage.writing.writer import Writer

INCOMPLETE_NAME = "incomplete.json"


@dataclass(frozen=True)
class Incomplete:
    """The record of an attempt: `failures` are its quarantined shards."""

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
    """Write the record, in place of an earlier attempt's."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = Incomplete(error.artifact, error.num_shards, error.num_finished, error.failures, run_id, when)
    text = json.dumps({"format": "incomplete/1", **asdict(record)}, indent=1, ensure_ascii=False)
    store.storage.replace(f"{spec.address}/{INCOMPLETE_NAME}", text.encode())


def read_incomplete(store: Store, address: str) -> Incomplete | None:
    """Read the record at an artifact's address, or None if there is none."""
    text = store.storage.read_text(f"{address}/{INCOMPLETE_NAME}")
    if text is None:
        return None
    record = json.loads(text)
    if (recorded_format := record.pop("format")) != "incomplete/1":
        raise ValueError(f"{address}/{INCOMPLETE_NAME} has format {recorded_format!r}; this checkout reads incomplete/1")
    return from_jsonable(Incomplete, record, INCOMPLETE_NAME)


def clear_incomplete(store: Store, spec: ArtifactSpec) -> None:
    """Delete the record, because the artifact is complete."""
    store.storage.delete(f"{spec.address}/{INCOMPLETE_NAME}")


def incomplete_inputs(artifacts: Iterable[Artifact]) -> list[Finding]:
    """Return a finding for every artifact that was made without some of its shards."""
    return [
        Finding("incomplete", artifact.ref("input"), describe_omitted(artifact.manifest))
        for artifact in artifacts
        if artifact.manifest.omitted
    ]


def leave_out(store: Store, out: Writer, earlier: Incomplete) -> None:
    """Allow the recorded shards to be missing if a waiver covers them. The manifest records the waiver if it is used.

    Shards that fail for the first time are not covered, because nobody has decided about them.
    """
    spec = out.spec
    ref = InputRef("", spec.key, spec.partition, "", spec.address)
    try:
        out.waivers += apply_waivers(store, spec.name, [Finding("incomplete", ref, str(earlier))], utc_today())
    except GateError:
        return
    out.may_omit = frozenset(failure.name for failure in earlier.failures)
