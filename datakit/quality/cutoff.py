"""The cutoff of a corpus that keeps a fraction of its documents, as `datakit.score_cutoff` found it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from lineage.artifact.store import Artifact

CUTOFF_FILE = "cutoff.json"


@dataclass(frozen=True)
class Cutoff:
    """The last document that stays: lower scores are dropped, and of the same score larger ids."""

    score: float
    id: str

    def drops(self) -> pl.Expr:
        """Compute which rows stay, from the columns `score` and `id`."""
        return (pl.col("score") < self.score) | ((pl.col("score") == self.score) & (pl.col("id") > self.id))


def read_cutoff(artifact: Artifact, source: str) -> Cutoff:
    """Return the cutoff of a source. Raises: ValueError naming the sources that it knows."""
    cutoffs: Mapping[str, Any] = json.loads(artifact.files(CUTOFF_FILE)[0].read_text())
    if source not in cutoffs:
        raise ValueError(f"{artifact.name} has no cutoff for source {source}; it has: {', '.join(sorted(cutoffs))}")
    return Cutoff(**cutoffs[source])
