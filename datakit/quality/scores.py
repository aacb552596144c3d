"""The stage `datakit.scores`: a scorer's probability for every document of a source, and where a corpus may cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from datakit.documents.parts import as_frame, iterate_part, slices, texts_of, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from datakit.quality.score_counts import DECIMALS, UNITS, ScoreCounts, first_of_groups
from datakit.quality.scorer_model import Model
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

FOLDER = "scores"
DECILES = 10
SAMPLE_CHARS = 160
SLICE_CHARS = 1 << 20


@dataclass(frozen=True)
class ScoresConfig:
    """How many documents of each decile are shown."""

    samples: int = 3

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"scores.samples is {self.samples}; it must be at least 1")


def score_source(out: Writer, config: ScoresConfig, normalized: Artifact, scorer: Artifact) -> None:
    """Write `scores/part-*.parquet` beside the documents' parts: id, score (0 to 1). Deciles with samples go into `extra`."""
    parts, model = parts_of_tasks(out, normalized), Model.of(scorer)
    out.map_shards(score_part, {part.stem: (part, model) for part in parts})
    tables = [out.folder / FOLDER / part.name for part in parts]
    counts = ScoreCounts.of(tables)
    out.bring(*parts)
    shown = deciles(tables, counts, parts, config.samples)
    out.extra["scores"] = {"scorer": scorer.manifest.extra["scorer"]["name"], "deciles": shown}
    out.record(rows_in=counts.total, rows_out=counts.total)


SCORES = Stage(
    "datakit.scores",
    "2",
    score_source,
    description="The score of every document, with deciles and samples to read.",
    checks=("file_set", "attributes_aligned"),
)
"""2: words are folded (`datakit.text.folding`)."""


def score_part(folder: Path, part: Path, model: Model) -> dict[str, int]:
    """Score one part, a slice of a row group at a time."""
    with writing_part(folder / FOLDER / part.name, _frame([], []).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            for rows in slices(as_frame(table), SLICE_CHARS):
                out.write(_frame(rows["id"], model.probabilities(rows["text"].to_list()).round(DECIMALS)).to_arrow())
    return {"rows": out.rows}


def _frame(ids: Any, scores: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), "score": pl.Series(scores, dtype=pl.Float64)})


def deciles(tables: Sequence[Path], counts: ScoreCounts, parts: Sequence[Path], samples: int) -> list[dict[str, Any]]:
    """Return ten groups of equal size, the lowest scores first: bounds, mean, and the openings of the first few
    documents by id.

    `tables` of scores and `parts` of documents are in id order.
    """
    bounds = [counts.total * i // DECILES for i in range(DECILES + 1)]
    chosen = first_of_groups(tables, counts, bounds, samples)
    texts = {i: _opening(text) for i, text in texts_of(parts, (identity for ids in chosen for identity in ids)).items()}
    return [
        {
            "decile": number,
            "documents": stop - start,
            "low": counts.at(start) / UNITS,
            "high": counts.at(stop - 1) / UNITS,
            "mean": round((counts.sum_below(stop) - counts.sum_below(start)) / (stop - start) / UNITS, DECIMALS),
            "samples": [{"id": identity, "text": texts[identity]} for identity in ids],
        }
        for number, ((start, stop), ids) in enumerate(zip(pairwise(bounds), chosen, strict=True), start=1)
        if stop > start
    ]


def _opening(text: str) -> str:
    return " ".join(text[: 4 * SAMPLE_CHARS].split())[:SAMPLE_CHARS]
