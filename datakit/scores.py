"""The stage `datakit.scores`: a scorer's probability for every document of a source, and where a corpus may cut."""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from datakit.calibration import Platt
from datakit.documents import as_frame, document_paths, iterate_part, slices, writing_part
from datakit.scorer import SCORER_FILE, WEIGHTS_FILE, document_logits
from datakit.text_features import FeatureConfig, probe_digest
from lineage.stage import Stage
from lineage.store import Artifact, Writer

FOLDER = "scores"
DECIMALS = 6
"""Scores are rounded so that no last bit of arithmetic decides on which side of a threshold a document lies."""

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


@dataclass(frozen=True)
class Model:
    """A trained scorer. Paths and numbers only: it crosses a process border."""

    weights: Path
    features: FeatureConfig
    platt: Platt

    @staticmethod
    def of(scorer: Artifact) -> "Model":
        """Raises ValueError when its weights were learned under another hashing of words than this code's."""
        learned = json.loads(scorer.files(SCORER_FILE)[0].read_text())
        probe = learned["features"].pop("probe")
        features = FeatureConfig(**learned["features"])
        if probe != (now := probe_digest(features.bits)):
            raise ValueError(
                f"{scorer.name}: words were hashed to {probe} when it was trained, and are to {now} now; train it anew"
            )
        return Model(scorer.files(WEIGHTS_FILE)[0], features, Platt(**learned["platt"]))

    def scores(self, texts: pl.Series, weights: np.ndarray) -> np.ndarray:
        return self.platt.probability(document_logits(texts.to_list(), weights, self.features)).round(DECIMALS)


def score_source(out: Writer, config: ScoresConfig, normalized: Artifact, scorer: Artifact) -> None:
    """Write `scores/part-*.parquet` beside the documents' parts: id, score (0 to 1). Deciles with samples go into `extra`."""
    parts = document_paths(normalized)
    out.map_shards(score_part, {part.stem: (part, Model.of(scorer)) for part in parts})
    scores = pl.concat([pl.read_parquet(path) for path in sorted((out.folder / FOLDER).glob("*.parquet"))])
    out.extra["scores"] = {"scorer": scorer.manifest.extra["scorer"]["name"], "deciles": deciles(scores, parts, config.samples)}
    out.record(rows_in=scores.height, rows_out=scores.height)


SCORES = Stage("datakit.scores", "1", score_source)


def score_part(folder: Path, part: Path, model: Model) -> dict[str, int]:
    """Score one part, a slice of a row group at a time."""
    weights = np.load(model.weights)
    with writing_part(folder / FOLDER / part.name, _frame([], []).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            for rows in slices(as_frame(table), SLICE_CHARS):
                out.write(_frame(rows["id"], model.scores(rows["text"], weights)).to_arrow())
    return {"rows": out.rows}


def _frame(ids: Any, scores: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), "score": pl.Series(scores, dtype=pl.Float64)})


def deciles(scores: pl.DataFrame, parts: list[Path], samples: int) -> list[dict[str, Any]]:
    """Ten groups of equal size, the lowest scores first: bounds, mean, and the openings of the first few documents by id."""
    ordered = scores.sort("score", "id")
    bounds = [ordered.height * i // DECILES for i in range(DECILES + 1)]
    groups = [ordered[start:stop] for start, stop in pairwise(bounds)]
    chosen = [heapq.nsmallest(samples, group["id"].to_list()) for group in groups]
    texts = _openings(parts, {identity for ids in chosen for identity in ids})
    return [
        {
            "decile": number,
            "documents": group.height,
            "low": group["score"].min(),
            "high": group["score"].max(),
            "mean": round(float(group["score"].sum()) / group.height, DECIMALS),
            "samples": [{"id": identity, "text": texts[identity]} for identity in ids],
        }
        for number, (group, ids) in enumerate(zip(groups, chosen, strict=True), start=1)
        if group.height
    ]


def _openings(parts: list[Path], wanted: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for identity, text in _chosen(parts, wanted):
        found[identity] = " ".join(text[: 4 * SAMPLE_CHARS].split())[:SAMPLE_CHARS]
    return found


def _chosen(parts: list[Path], wanted: set[str]) -> Iterator[tuple[str, str]]:
    for part in parts:
        for table in iterate_part(part, ["id", "text"]):
            yield from as_frame(table).filter(pl.col("id").is_in(list(wanted))).iter_rows()
