"""Drift and the evidence that clears it.

An artifact has *drifted* if the code of its stage, or a package that this code imports, has changed since, while the stage
version says that its meaning is the same. `lineage.build.verify` makes some or all of it again with today's code. The result is
written beside the manifest, `<address>/verified/<digest of the code>.json`; the manifest does not change. Equal bytes clear the
drift for exactly this code and these package versions; the next change needs new evidence.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from lineage.artifact.manifest import Manifest
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.trust.fingerprint import Code

VERIFIED_FOLDER = "verified"


@dataclass(frozen=True)
class Evidence:
    """An artifact made again by some code: all of it (`shards` is empty), or these shards and the code after them."""

    fingerprint: str
    packages: Mapping[str, str]
    outcome: Literal["equal", "differs"]
    shards: tuple[str, ...]
    num_shards: int
    """Number of shards that the manifest lists."""

    files: tuple[str, ...]
    """Files that were made again; the others were copied from the artifact."""

    detail: str
    """The first differing files, and differences of code and packages; empty if nothing differs."""

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
        """The result, who found it, and what to do about it."""
        if self.is_equal:
            return f"verified equivalent on {self.extent} ({self.who}, {self.when})"
        difference = f"today's code makes something else ({self.who}, {self.when}): {self.detail}"
        return f"{difference}; bump the stage version, or put the code back"


@dataclass(frozen=True)
class Drift:
    """What has changed since an artifact was made, and the evidence for today's code, if there is any."""

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
    """Return how an artifact has drifted, or None if the same code made it with the same packages."""
    changes = code_changes(artifact.manifest, code)
    return Drift(changes, read_evidence(artifact, code)) if changes else None


def code_changes(manifest: Manifest, code: Code) -> tuple[str, ...]:
    """Return what has changed of a stage's code. Packages that an older manifest does not list are not compared."""
    changes = ["its code has changed since"] if manifest.code_fingerprint != code.fingerprint else []
    then = manifest.packages
    changes += [f"{name} was {then[name]} and is {now}" for name, now in code.packages.items() if then.get(name, now) != now]
    return tuple(changes)


def record_evidence(artifact: Artifact, code: Code, evidence: Evidence) -> None:
    """Write evidence beside the manifest, atomically, in place of earlier evidence for the same code."""
    text = json.dumps(asdict(evidence), indent=1, ensure_ascii=False) + "\n"
    artifact.store.storage.replace(_address(artifact, code), text.encode())


def read_evidence(artifact: Artifact, code: Code) -> Evidence | None:
    """Return the evidence for this code, or None if there is none."""
    text = artifact.store.storage.read_text(_address(artifact, code))
    if text is None:
        return None
    return from_jsonable(Evidence, json.loads(text), _address(artifact, code))


def _address(artifact: Artifact, code: Code) -> str:
    return f"{artifact.spec.address}/{VERIFIED_FOLDER}/{code.id}.json"
