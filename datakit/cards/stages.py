"""The artifacts that a card describes, and what became of every record according to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lineage.artifact.store import Artifact


@dataclass(frozen=True)
class Stages:
    """The source's artifacts."""

    raw: Artifact
    normalized: Artifact
    quality: Artifact
    rules: Artifact
    contamination: Artifact
    duplicates: Artifact
    corpus: Artifact
    scores: Artifact | None = None
    """Present if the corpus has a scorer."""

    tokens: Artifact | None = None
    """The training token cache, whose format may also drop documents; present if there is one."""

    @property
    def source(self) -> Mapping[str, Any]:
        return self.raw.manifest.extra["source"]


def all_drops(stages: Stages) -> dict[str, int]:
    """Return `stage: reason` -> count, of every stage that drops records."""
    counted = [("normalize", stages.normalized), ("corpus", stages.corpus), ("tokens", stages.tokens)]
    drops = {name: artifact.manifest.statistics.get("drops", {}) for name, artifact in counted if artifact is not None}
    return {f"{name}: {reason}": n for name, by_reason in drops.items() for reason, n in by_reason.items()}


def fates(stages: Stages) -> dict[str, int]:
    """Return what became of every record."""
    kept, drops = stages.corpus.manifest.statistics, all_drops(stages)
    without_tokens = sum(n for name, n in drops.items() if name.startswith("tokens: "))
    return {"train": kept["rows_train"] - without_tokens, "held out": kept["rows_heldout"], **drops}
