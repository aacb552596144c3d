"""The stage `datakit.score_cutoff`: which scores a corpus keeps if it keeps a fraction, of each source or of all
together.
"""

import heapq
import json
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from datakit.quality.cutoff import CUTOFF_FILE
from datakit.quality.score_counts import UNITS, ScoreCounts, ids_of
from datakit.quality.scores import FOLDER
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class ScoreCutoffConfig:
    """Keep the best `keep_frac` of the scored documents; of equal scores the smaller ids."""

    keep_frac: float
    over: Literal["source", "corpus"] = "source"

    def __post_init__(self) -> None:
        if not 0 < self.keep_frac < 1:
            raise ValueError(f"score cutoff: keep_frac is {self.keep_frac}; it must be above 0 and below 1")
        if self.over not in ("source", "corpus"):
            raise ValueError(f"score cutoff: over is {self.over!r}; allowed: 'source', 'corpus'")


def find_cutoffs(out: Writer, config: ScoreCutoffConfig, scores: tuple[Artifact, ...]) -> None:
    """Write `cutoff.json`: source -> the last document that stays."""
    groups = [[artifact] for artifact in scores] if config.over == "source" else [list(scores)]
    cutoffs: dict[str, Any] = {}
    rows, kept = 0, 0
    for group in groups:
        cutoff, documents, stay = _cutoff(group, config.keep_frac)
        rows, kept = rows + documents, kept + stay
        cutoffs |= {str(artifact.spec.partition or artifact.spec.key[-1]): cutoff for artifact in group}
    (out.folder / CUTOFF_FILE).write_text(json.dumps(cutoffs, indent=1, sort_keys=True) + "\n")
    out.extra["cutoffs"] = cutoffs
    out.record(rows_in=rows, rows_out=kept, drops={"below_cutoff": rows - kept})


SCORE_CUTOFF = Stage(
    "datakit.score_cutoff",
    "1",
    find_cutoffs,
    description="The lowest score that a corpus keeps, by source, if it keeps a fraction of its documents.",
    checks=("rows_conserved", "file_set"),
)


def _cutoff(group: list[Artifact], keep_frac: float) -> tuple[dict[str, Any], int, int]:
    """Return the last document that stays, how many there are, and how many stay. Scores are counted, and no ids are
    held.
    """
    tables = [artifact.files(".parquet", under=f"{FOLDER}/") for artifact in group]
    counts = ScoreCounts.of(path for of_source in tables for path in of_source)
    keep = max(1, round(keep_frac * counts.total))
    score = counts.at(counts.total - keep)
    above = counts.total - int(counts.below[score] + counts.counts[score])
    ties = heapq.merge(*(ids_of(of_source, score / UNITS) for of_source in tables))
    return {"score": score / UNITS, "id": next(islice(ties, keep - above - 1, None))}, counts.total, keep
