"""The launch gate: which ancestors training and evaluation refuse to build on, and which waivers override that.

It reads manifests, file sizes and verdicts of every ancestor, and no database. It runs twice for a job: at the launch, and when
the job process opens its inputs, because the job may wait in a queue for hours in between.
"""

import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, UnsoundManifestError, sound_manifest
from lineage.artifact.spec import InputRef
from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.signing.judge import Judge, judge_of
from lineage.signing.log import LogError
from lineage.stage import RequiredAncestors
from lineage.trust.verdict_log import HEAD, Head, VerdictLog, read_log
from lineage.trust.verdicts import subject_of_ref
from lineage.trust.waivers import recorded_waivers

log = logging.getLogger(__name__)

MIRRORED = "mirrored.json"
"""The note that `lineage.upkeep.mirror` leaves beside the manifest of a copy."""

type Problem = Literal[
    "missing", "stale", "edited", "moved", "swapped", "damaged", "incomplete", "failed", "quarantined", "unaudited", "unjudged",
    "unsigned", "forged", "rolled_back",
]  # fmt: skip

MENDS: Mapping[Problem, str] = {
    "missing": "{materialize}",
    "stale": "{materialize}",
    "edited": "delete {address} and {materialize}",
    "moved": "put the folder back, or delete {address} and {materialize}",
    "swapped": "materialize what was made from it again",
    "damaged": "copy the missing files, or delete {address} and {materialize}",
    "incomplete": "mend the cause and {materialize} (only missing shards run), or record a waiver (`./marin waive --help`)",
    "failed": "mend the cause and {materialize}, or record a waiver (`./marin waive --help`)",
    "quarantined": "`./marin quarantine {address} --lift --why ...`, or record a waiver (`./marin waive --help`)",
    "unjudged": "`./marin verdicts` shows the log of the root and says what to do",
    "unsigned": "./marin sign {address} if you know where it comes from, or delete {address} and {materialize}",
    "forged": "find out who wrote it; delete {address} and {materialize}",
    "rolled_back": "find out who put it back; delete {address} and {materialize}",
    "unaudited": "make it with a contamination stage among its inputs, or record a waiver (`./marin waive --help`)",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One reason not to build on an ancestor."""

    problem: Problem
    ref: InputRef
    """The ancestor, as its descendant refers to it."""
    detail: str

    @property
    def artifact(self) -> str:
        return "/".join(self.ref.key) + (f"[{self.ref.partition}]" if self.ref.partition else "")

    @property
    def mend(self) -> str:
        partition = f" --partition {self.ref.partition}" if self.ref.partition else ""
        command = f"`./marin materialize {'/'.join(self.ref.key)}{partition}`"
        return MENDS[self.problem].format(address=self.ref.address, materialize=command)

    def __str__(self) -> str:
        return f"{self.problem}: {self.artifact}: {self.detail}; {self.mend}"


class GateError(RuntimeError):
    """Work was refused; `findings` has every reason."""

    def __init__(self, target: str, findings: Sequence[Finding], notes: Sequence[str] = ()):
        reasons = "\n  ".join([*map(str, findings), *notes])
        super().__init__(f"{target} is refused, its ancestors are not fit to build on:\n  {reasons}")
        self.findings = tuple(findings)


def utc_today() -> datetime.date:
    """Return today's date in UTC; waivers expire by it."""
    return datetime.datetime.now(datetime.UTC).date()


def check_launch(
    store: Store, target: str, refs: Sequence[InputRef], needs: RequiredAncestors, day: datetime.date
) -> list[dict[str, Any]]:
    """Check that an artifact called `target` may be made from its inputs. Returns the used waivers as records for its manifest.

    Raises: GateError naming every unfit ancestor that no waiver covers, with its remedy.
    """
    return apply_waivers(store, target, inspect(store, refs, needs), day)


def apply_waivers(store: Store, target: str, findings: Sequence[Finding], day: datetime.date) -> list[dict[str, Any]]:
    """Return the waivers that cover the findings, each with what it allowed. Raises: GateError naming findings that none
    covers."""
    if not findings:
        return []
    judge = judge_of(store.storage)
    waivers = recorded_waivers(store, read_log(store, judge.verdict(store.storage)), judge)
    taken: dict[str, dict[str, Any]] = {}
    refused = []
    for finding in findings:
        covering = [each for each in waivers.sound if each[1].covers(finding.problem, finding.artifact, target, day)]
        if not covering:
            refused.append(finding)
            continue
        artifact, waiver = covering[0]
        record = {"address": artifact.spec.address, **asdict(waiver), "let_through": []}
        record = taken.setdefault(artifact.spec.address, record)
        record["let_through"].append(f"{finding.problem}: {finding.artifact}")
        log.warning("%s: waived by %s (%s): %s", target, waiver.who, waiver.why, finding)
    if refused:
        notes = [f"a waiver does not count: {address}: {why}" for address, why in waivers.refused]
        raise GateError(target, refused, [*notes, f"signatures: {judge.policy}"])
    return list(taken.values())


def inspect(store: Store, refs: Sequence[InputRef], needs: RequiredAncestors) -> list[Finding]:
    """Return every problem of some artifacts and their ancestors, nearest first. Reads sizes of data files, not their
    contents."""
    try:
        judge = judge_of(store.storage)
    except LogError as error:
        return [Finding("unjudged", ref, str(error)) for ref in refs]
    log = read_log(store, judge.verdict(store.storage))
    lost = judge.lost_verdicts(log.digests)
    missing = "the transparency log names {}; it is gone or has another text"
    findings = [Finding("unjudged", ref, missing.format(name)) for ref in refs for name in lost]
    manifests: dict[str, Manifest] = {}
    ref_of: dict[str, InputRef] = {}
    seen: set[tuple[str, str]] = set()
    pending = list(refs)
    while pending:
        ref = pending.pop(0)
        if (ref.address, ref.data_version) in seen:
            continue
        seen.add((ref.address, ref.data_version))
        manifest = manifests.get(ref.address) or _sound_manifest(store, ref, judge)
        if isinstance(manifest, Finding):
            findings.append(manifest)
            continue
        if manifest.data_version != ref.data_version:
            detail = f"was read as data version {ref.data_version}, there is {manifest.data_version}"
            findings.append(Finding("swapped", ref, detail))
        if ref.address not in manifests:
            manifests[ref.address], ref_of[ref.address] = manifest, ref
            there = store.storage.sizes(manifest.spec.address)
            findings += _absent_files(manifest, ref, there) + _judged(log, ref) + _cut_log(log, manifest, ref, there)
            if manifest.omitted:
                findings.append(Finding("incomplete", ref, describe_omitted(manifest)))
            pending += manifest.spec.inputs
    return findings + [
        Finding("unaudited", ref_of[address], f"made by {manifest.spec.stage} with no {needs[manifest.spec.stage]} above it")
        for address, manifest in manifests.items()
        if manifest.spec.stage in needs and needs[manifest.spec.stage] not in _stages_above(address, manifests)
    ]


def describe_omitted(manifest: Manifest) -> str:
    """Describe the shards that an artifact lacks by a waiver."""
    named = ", ".join(f"{name} ({error})" for name, error in manifest.omitted.items())
    return f"made without {len(manifest.omitted)} of its shards: {named}"


def _sound_manifest(store: Store, ref: InputRef, judge: Judge) -> Manifest | Finding:
    where = f"{ref.address}/{MANIFEST_NAME}"
    try:
        text = store.storage.read_text(where)
    except ValueError as error:
        return Finding("edited", ref, str(error))
    if text is None:
        return Finding("missing", ref, f"there is no {where} in {store.root}")
    try:
        manifest = sound_manifest(text, ref.address, store.storage.uri(where))
    except UnsoundManifestError as error:
        return Finding(error.kind, ref, str(error))
    problem = judge.manifest(store.storage, manifest, text)
    return manifest if problem is None else Finding(problem.kind, ref, problem.detail)


def _absent_files(manifest: Manifest, ref: InputRef, there: Mapping[str, int]) -> list[Finding]:
    """Return data files that are missing or have another size: a copy that stopped half-way may have its manifest."""
    old = [name for name in there if name.startswith("verdicts/")]
    unread = [Finding("unjudged", ref, f"{old[0]} is a verdict of before 2026-11-24: `./marin upgrade`")] if old else []
    sizes = {entry.path: there.get(f"{manifest.data_folder}/{entry.path}") for entry in manifest.files}
    wrong = [entry for entry in manifest.files if sizes[entry.path] != entry.bytes]
    if not wrong:
        return unread
    first = wrong[0]
    found = sizes[first.path]
    state = "is not there" if found is None else f"has {found} bytes, its manifest says {first.bytes}"
    return [*unread, Finding("damaged", ref, f"{len(wrong)} of {len(manifest.files)} files: {first.path} {state}")]


def _judged(log: VerdictLog, ref: InputRef) -> list[Finding]:
    """Return what the log holds against some bytes, and faults of the log that may be about them."""
    subject = subject_of_ref(ref)
    unread = [Finding("unjudged", ref, fault.detail) for fault in log.faults if fault.is_about(subject)]
    return unread + [
        Finding("failed" if v.kind == "failed" else "quarantined", ref, f"{v.name}: {v.why} ({v.who}, {v.when})")
        for v in log.standing(subject)
    ]


def _cut_log(log: VerdictLog, manifest: Manifest, ref: InputRef, there: Mapping[str, int]) -> list[Finding]:
    """Return a finding if the log is shorter than, or another than, when this artifact was committed.

    A mirrored artifact (`lineage.upkeep.mirror` leaves a note) carries the head of the log of the root it came from.
    """
    recorded_head = manifest.extra.get(HEAD)
    if recorded_head is None:
        return []
    try:
        seen = from_jsonable(Head, recorded_head, HEAD)
    except ValueError as error:
        return [Finding("unjudged", ref, str(error))]
    fault = None if seen.first != log.digests.get(1) and MIRRORED in there else log.fault_against(seen)
    return [] if fault is None else [Finding("unjudged", ref, f"{fault.detail} (fault {fault.id})")]


def _stages_above(address: str, manifests: Mapping[str, Manifest]) -> set[str]:
    stages: set[str] = set()
    seen = {address}
    pending = [address]
    while pending:
        for ref in manifests[pending.pop()].spec.inputs:
            if ref.address in manifests and ref.address not in seen:
                seen.add(ref.address)
                stages.add(manifests[ref.address].spec.stage)
                pending.append(ref.address)
    return stages
