"""Drift and the evidence that clears it.

An artifact has *drifted* when the code of its stage, or a package that this code imports, is not what made it, while the
stage version says that its meaning is the same. `lineage.verify` makes (some of) it again with today's code; what came out is
written beside the manifest, `<address>/verified/<digest of the code>.json`, and the manifest stays as it is. Equal bytes
clear the drift for exactly this code and these package versions; the next change asks again.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from lineage.config import from_jsonable
from lineage.fingerprint import Code
from lineage.manifest import Manifest
from lineage.store import Artifact

VERIFIED_FOLDER = "verified"


@dataclass(frozen=True)
class Evidence:
    """An artifact made again by some code: wholly (`shards` is empty), or these of its shards and whatever follows them."""

    fingerprint: str
    packages: Mapping[str, str]
    outcome: Literal["equal", "differs"]
    shards: tuple[str, ...]
    num_shards: int
    """How many shards the artifact has on record; 0 where it has none."""

    files: tuple[str, ...]
    """Files that were made again; the others were copied from the artifact."""

    detail: str
    """The first differing file and the circumstances, where something differs."""

    who: str
    when: str

    @property
    def is_equal(self) -> bool:
        return self.outcome == "equal"

    @property
    def extent(self) -> str:
        return f"{len(self.shards)} of {self.num_shards} shards" if self.shards else "all of its files"

    @property
    def verdict(self) -> str:
        """What was found, by whom, and what to do about it."""
        if self.is_equal:
            return f"verified equivalent on {self.extent} ({self.who}, {self.when})"
        found = f"today's code makes something else ({self.who}, {self.when}): {self.detail}"
        return f"{found}; bump the stage version, or put the code back"


@dataclass(frozen=True)
class Drift:
    """What has changed since an artifact was made, and what making it again with today's code has shown, if anybody did."""

    changes: tuple[str, ...]
    evidence: Evidence | None

    @property
    def is_cleared(self) -> bool:
        return self.evidence is not None and self.evidence.is_equal

    def __str__(self) -> str:
        changes = ", ".join(self.changes)
        if self.evidence is None:
            return f"{changes}, the stage version has not; `./marin verify` makes some of it again and compares"
        return f"{changes}; {self.evidence.verdict}"


def drift_of(artifact: Artifact, code: Code) -> Drift | None:
    """How an artifact has drifted from the code of its stage; None when the same code made it with the same packages."""
    changes = code_changes(artifact.manifest, code)
    return Drift(changes, read_evidence(artifact, code)) if changes else None


def code_changes(manifest: Manifest, code: Code) -> tuple[str, ...]:
    """What of a stage's code is not as it was. Packages that an older manifest does not know are not compared."""
    found = ["its code has changed since"] if manifest.code_fingerprint != code.fingerprint else []
    then = manifest.packages
    found += [f"{name} was {then[name]} and is {now}" for name, now in code.packages.items() if then.get(name, now) != now]
    return tuple(found)


def record_evidence(artifact: Artifact, code: Code, evidence: Evidence) -> None:
    """Write evidence beside the manifest, whole or not at all, over what the same code showed before."""
    text = json.dumps(asdict(evidence), indent=1, ensure_ascii=False) + "\n"
    artifact.store.storage.replace(_address(artifact, code), text.encode())


def read_evidence(artifact: Artifact, code: Code) -> Evidence | None:
    """What this code has shown of an artifact, or None when nobody has asked."""
    text = artifact.store.storage.read_text(_address(artifact, code))
    if text is None:
        return None
    return from_jsonable(Evidence, json.loads(text), _address(artifact, code))


def _address(artifact: Artifact, code: Code) -> str:
    return f"{artifact.spec.address}/{VERIFIED_FOLDER}/{code.id}.json"
