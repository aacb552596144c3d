"""The artifacts that a card is about, and what they say became of every record."""

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
    """Where its line has a scorer."""

    tokens: Artifact | None = None
    """The token cache of what is trained on, whose format may drop documents too; where its line has one."""

    @property
    def source(self) -> Mapping[str, Any]:
        return self.raw.manifest.extra["source"]


def all_drops(stages: Stages) -> dict[str, int]:
    """`stage: reason` -> how many, of every stage that drops records."""
    counted = [("normalize", stages.normalized), ("corpus", stages.corpus), ("tokens", stages.tokens)]
    drops = {name: made.manifest.statistics.get("drops", {}) for name, made in counted if made is not None}
    return {f"{name}: {reason}": n for name, found in drops.items() for reason, n in found.items()}


def fates(stages: Stages) -> dict[str, int]:
    """What became of every record."""
    kept, drops = stages.corpus.manifest.statistics, all_drops(stages)
    without_tokens = sum(n for name, n in drops.items() if name.startswith("tokens: "))
    return {"train": kept["rows_train"] - without_tokens, "held out": kept["rows_heldout"], **drops}
