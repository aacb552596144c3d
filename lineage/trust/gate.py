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
from lineage.stage import RequiredAncestors
from lineage.trust.verdicts import verdicts
from lineage.trust.waivers import recorded_waivers

log = logging.getLogger(__name__)

type Problem = Literal[
    "missing", "stale", "edited", "moved", "swapped", "damaged", "incomplete", "failed", "quarantined", "unaudited"
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

    def __init__(self, target: str, findings: Sequence[Finding]):
        reasons = "\n  ".join(str(finding) for finding in findings)
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
    waivers = recorded_waivers(store) if findings else []
    taken: dict[str, dict[str, Any]] = {}
    refused = []
    for finding in findings:
        covering = [each for each in waivers if each[1].covers(finding.problem, finding.artifact, target, day)]
        if not covering:
            refused.append(finding)
            continue
        artifact, waiver = covering[0]
        record = {"address": artifact.spec.address, **asdict(waiver), "let_through": []}
        record = taken.setdefault(artifact.spec.address, record)
        record["let_through"].append(f"{finding.problem}: {finding.artifact}")
        log.warning("%s: waived by %s (%s): %s", target, waiver.who, waiver.why, finding)
    if refused:
        raise GateError(target, refused)
    return list(taken.values())


def inspect(store: Store, refs: Sequence[InputRef], needs: RequiredAncestors) -> list[Finding]:
    """Return every problem of some artifacts and their ancestors, nearest first. Reads sizes of data files, not their
    contents."""
    findings: list[Finding] = []
    manifests: dict[str, Manifest] = {}
    ref_of: dict[str, InputRef] = {}
    seen: set[tuple[str, str]] = set()
    pending = list(refs)
    while pending:
        ref = pending.pop(0)
        if (ref.address, ref.data_version) in seen:
            continue
        seen.add((ref.address, ref.data_version))
        manifest = manifests.get(ref.address) or _sound_manifest(store, ref)
        if isinstance(manifest, Finding):
            findings.append(manifest)
            continue
        if manifest.data_version != ref.data_version:
            detail = f"was read as data version {ref.data_version}, there is {manifest.data_version}"
            findings.append(Finding("swapped", ref, detail))
        if ref.address not in manifests:
            manifests[ref.address], ref_of[ref.address] = manifest, ref
            findings += _absent_files(store, manifest, ref) + _standing_verdicts(store, ref)
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


def _sound_manifest(store: Store, ref: InputRef) -> Manifest | Finding:
    where = f"{ref.address}/{MANIFEST_NAME}"
    text = store.storage.read_text(where)
    if text is None:
        return Finding("missing", ref, f"there is no {where} in {store.root}")
    try:
        return sound_manifest(text, ref.address, store.storage.uri(where))
    except UnsoundManifestError as error:
        return Finding(error.kind, ref, str(error))


def _absent_files(store: Store, manifest: Manifest, ref: InputRef) -> list[Finding]:
    """Return data files that are missing or have another size: a copy that stopped half-way may have its manifest."""
    sizes = store.storage.sizes(f"{manifest.spec.address}/{manifest.data_folder}")
    wrong = [entry for entry in manifest.files if sizes.get(entry.path) != entry.bytes]
    if not wrong:
        return []
    first = wrong[0]
    found = sizes.get(first.path)
    state = "is not there" if found is None else f"has {found} bytes, its manifest says {first.bytes}"
    return [Finding("damaged", ref, f"{len(wrong)} of {len(manifest.files)} files: {first.path} {state}")]


def _standing_verdicts(store: Store, ref: InputRef) -> list[Finding]:
    standing = [verdict for verdict in verdicts(store, ref.address) if verdict.standing]
    return [Finding(v.kind, ref, f"{v.name}: {v.why} ({v.who}, {v.when})") for v in standing]


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
