"""What the manifests above an artifact say that others ask for: sources, licences, the audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lineage.artifact.manifest import Manifest
from lineage.artifact.newest import newest
from lineage.artifact.store import Artifact

RAW_STAGE = "datakit.raw"
CHECKPOINT_STAGE = "trainer.checkpoint"
AUDIT_STAGE = "evals.audit"
AUDIT_KEY = "contamination_audit"
"""Last part of the key of a run's audits."""
UNKNOWN_LICENCE = "NOASSERTION"
"""SPDX's word for a licence that nobody has stated."""


@dataclass(frozen=True)
class SourceFacts:
    """A source as its raw artifact recorded it. `licence` is verified; a claim that nobody checked is in `claim` only."""

    name: str
    address: str
    data_version: str
    licence: str | None
    claim: str


@dataclass(frozen=True)
class Ancestry:
    """An artifact's manifest and those of its ancestors, nearest first, and its audit if there is one."""

    artifact: Manifest
    manifests: tuple[Manifest, ...]
    audit: Manifest | None = None

    @property
    def sources(self) -> tuple[SourceFacts, ...]:
        """Every source above the artifact, by name."""
        source_manifests = [_source(manifest) for manifest in self.manifests if manifest.spec.stage == RAW_STAGE]
        return tuple(sorted(source_manifests, key=lambda source: (source.name, source.address)))

    @property
    def verdict(self) -> str:
        """The audit's verdict, or that there is none."""
        if self.audit is None:
            return "not audited"
        summary = self.audit.extra.get(_AUDIT, {})
        return str(summary.get("verdict", "not audited"))


_AUDIT = "audit"


def ancestry_of(artifact: Artifact, audit: Artifact | None = None) -> Ancestry:
    """Read the manifests above an artifact. Raises: ValueError if one is gone or has other bytes than were read."""
    manifests = tuple(one.manifest for one in artifact.store.walk_up(artifact))
    return Ancestry(artifact.manifest, manifests, None if audit is None else audit.manifest)


def audit_of(artifact: Artifact) -> Artifact | None:
    """Return the newest audit of the checkpoint that an artifact is or was exported from, or None.

    The audits of a run lie beside its checkpoints: `<run>/contamination_audit`.
    """
    checkpoints = [one for one in artifact.store.walk_up(artifact) if one.spec.stage == CHECKPOINT_STAGE]
    if not checkpoints:
        return None
    checkpoint = checkpoints[0]
    source_manifests = [
        audit
        for audit in artifact.store.artifacts(*checkpoint.spec.key[:-1], AUDIT_KEY)
        if audit.spec.stage == AUDIT_STAGE and _is_about(audit.manifest, checkpoint.manifest)
    ]
    return newest(source_manifests, f"audit of {checkpoint.name}") if source_manifests else None


def _is_about(audit: Manifest, checkpoint: Manifest) -> bool:
    wanted = (checkpoint.spec.key, checkpoint.spec.partition, checkpoint.data_version)
    return any((ref.key, ref.partition, ref.data_version) == wanted for ref in audit.spec.inputs if ref.name == "checkpoint")


def _source(manifest: Manifest) -> SourceFacts:
    declared: Mapping[str, Any] = manifest.extra.get("source", {})
    licence = declared.get("licence")
    verified = licence if isinstance(licence, str) and licence.strip() else None
    claim = str(licence.get("claim") or "") if isinstance(licence, Mapping) else ""
    name = str(declared.get("name") or manifest.spec.partition or manifest.spec.name)
    return SourceFacts(name, manifest.spec.address, manifest.data_version, verified, claim)


def licences_of(sources: Sequence[SourceFacts]) -> tuple[str, ...]:
    """Return the licences of some sources, each once; `NOASSERTION` stands for those that nobody has verified."""
    return tuple(sorted({source.licence or UNKNOWN_LICENCE for source in sources}))
