"""The launch gate: which ancestors training and evaluation refuse to build on, and which waivers override that.

It reads manifests, file sizes and verdicts of every ancestor, and no database. On a local root it also reads the bytes of files
that changed since they were last compared; a bucket lists checksums. It runs twice for a job: at the launch, and when the job
process opens its inputs, because the job may wait in a queue for hours in between.
"""

import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lineage.artifact.manifest import Manifest
from lineage.artifact.spec import InputRef
from lineage.artifact.store import Artifact, Store
from lineage.artifact.verified import changed_on_bucket, verify_once
from lineage.config import from_jsonable
from lineage.signing.judge import judge_of
from lineage.signing.log import LogError
from lineage.stage import RequiredAncestors
from lineage.trust.ancestry import Ancestor, Problem, RefKey, Unsound, ancestry
from lineage.trust.verdict_log import HEAD, Head, VerdictLog, read_log
from lineage.trust.verdicts import subject_of_ref
from lineage.trust.waivers import recorded_waivers

log = logging.getLogger(__name__)

MIRRORED = "mirrored.json"
"""The note that `lineage.upkeep.mirror` leaves beside the manifest of a copy."""

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
    """Return every problem of some artifacts and their ancestors, nearest first.

    Reads listings of data files (sizes; checksums on a bucket). Of a local root it reads each state of a file once."""
    try:
        judge = judge_of(store.storage)
    except LogError as error:
        return [Finding("unjudged", ref, str(error)) for ref in refs]
    log = read_log(store, judge.verdict(store.storage))
    missing = "the transparency log names {}; it is gone or has another text"
    findings = [Finding("unjudged", ref, missing.format(name)) for ref in refs for name in judge.lost_verdicts(log.digests)]
    ancestors = ancestry(store, refs, judge)
    findings += [finding for ancestor in ancestors for finding in _findings(store, log, ancestor)]
    by_ref = {ancestor.ref_key: ancestor for ancestor in ancestors}
    for ancestor in ancestors:
        needed = needs.get(ancestor.stage)
        if needed is not None and needed not in _stages_above(ancestor, by_ref):
            findings.append(Finding("unaudited", ancestor.ref, f"made by {ancestor.stage} with no {needed} above it"))
    return findings


def _findings(store: Store, log: VerdictLog, ancestor: Ancestor) -> list[Finding]:
    """Return the problems of one ancestor."""
    if isinstance(ancestor.chosen, Unsound):
        return [Finding(ancestor.chosen.problem, ancestor.ref, ancestor.chosen.detail)]
    files = _absent_files(ancestor.chosen, ancestor) or _changed_files(store, ancestor.chosen, ancestor)
    findings = [*files, *_judged(log, ancestor.ref), *_cut_log(log, ancestor.chosen, ancestor)]
    if ancestor.chosen.omitted:
        findings.append(Finding("incomplete", ancestor.ref, describe_omitted(ancestor.chosen)))
    return findings


def describe_omitted(manifest: Manifest) -> str:
    """Describe the shards that an artifact lacks by a waiver."""
    named = ", ".join(f"{name} ({error})" for name, error in manifest.omitted.items())
    return f"made without {len(manifest.omitted)} of its shards: {named}"


def _absent_files(manifest: Manifest, ancestor: Ancestor) -> list[Finding]:
    """Return data files that are missing, have another size (a copy that stopped half-way may have its manifest) or, on a
    bucket, another checksum."""
    place = f"{manifest.spec.address}/verdicts/"
    old = min((name for name in ancestor.listed if name.startswith(place)), default=None)
    unread = [Finding("unjudged", ancestor.ref, f"{old} is a verdict of before 2026-11-24: `./marin upgrade`")] if old else []
    folder = f"{manifest.spec.address}/{manifest.data_folder}"
    wrong = [entry for entry in manifest.files if changed_on_bucket(entry, ancestor.listed.get(f"{folder}/{entry.path}"))]
    if not wrong:
        return unread + _unlisted_files(manifest, ancestor)
    first = wrong[0]
    listed = ancestor.listed.get(f"{folder}/{first.path}")
    state = "is not there" if listed is None else f"has {listed.size} bytes, its manifest says {first.bytes}"
    if listed is not None and listed.size == first.bytes:
        state = f"has checksum {listed.crc32c}, its manifest says {first.crc32c}"
    damaged = Finding("damaged", ancestor.ref, f"{len(wrong)} of {len(manifest.files)} files: {first.path} {state}")
    return [*unread, damaged]


def _changed_files(store: Store, manifest: Manifest, ancestor: Ancestor) -> list[Finding]:
    """Return a finding if a file of a local root has other bytes of the same size. On a bucket the listing shows that."""
    if not store.storage.is_local:
        return []
    try:
        verify_once(Artifact(store, manifest))
    except ValueError as error:
        return [Finding("damaged", ancestor.ref, str(error))]
    return []


def _unlisted_files(manifest: Manifest, ancestor: Ancestor) -> list[Finding]:
    """Return a finding if files lie among the data that no manifest lists (names of a bucket's placeholders end in `/`)."""
    folder = f"{manifest.spec.address}/{manifest.data_folder}/"
    there = {name.removeprefix(folder) for name in ancestor.listed if name.startswith(folder) and not name.endswith("/")}
    strange = sorted(there - manifest.paths)
    if not strange:
        return []
    return [
        Finding("damaged", ancestor.ref, f"{len(strange)} files that its manifest does not list: {strange[0]}; delete them")
    ]


def _judged(log: VerdictLog, ref: InputRef) -> list[Finding]:
    """Return what the log holds against some bytes, and faults of the log that may be about them."""
    subject = subject_of_ref(ref)
    unread = [Finding("unjudged", ref, fault.detail) for fault in log.faults if fault.is_about(subject)]
    return unread + [
        Finding("failed" if v.kind == "failed" else "quarantined", ref, f"{v.name}: {v.why} ({v.who}, {v.when})")
        for v in log.standing(subject)
    ]


def _cut_log(log: VerdictLog, manifest: Manifest, ancestor: Ancestor) -> list[Finding]:
    """Return a finding if the log is shorter than, or another than, when this artifact was committed.

    A mirrored artifact (`lineage.upkeep.mirror` leaves a note) carries the head of the log of the root it came from.
    """
    recorded_head = manifest.extra.get(HEAD)
    if recorded_head is None:
        return []
    try:
        head = from_jsonable(Head, recorded_head, HEAD)
    except ValueError as error:
        return [Finding("unjudged", ancestor.ref, str(error))]
    is_copy = f"{manifest.spec.address}/{MIRRORED}" in ancestor.listed
    fault = None if is_copy and head.first != log.digests.get(1) else log.fault_against(head)
    return [] if fault is None else [Finding("unjudged", ancestor.ref, f"{fault.detail} (fault {fault.id})")]


def _stages_above(start: Ancestor, by_ref: Mapping[RefKey, Ancestor]) -> set[str]:
    above: set[str] = set()
    visited = {start.ref_key}
    pending = [start]
    while pending:
        for ref in pending.pop().inputs:
            parent = by_ref[ref.address, ref.data_version]
            if parent.ref_key not in visited:
                visited.add(parent.ref_key)
                above.add(parent.stage)
                pending.append(parent)
    return above
