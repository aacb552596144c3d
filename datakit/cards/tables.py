"""What a card shows of tables that grow with the source. They are read one row group at a time, and only what is shown
is kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from datakit.dedup.paragraph_cuts import Span, spans_cut
from datakit.documents.parts import as_frame, iterate_part, text_chars


@dataclass(frozen=True)
class Lengths:
    """Characters of documents: the different lengths, ascending, and how many documents have each; both int64."""

    characters: np.ndarray
    documents: np.ndarray

    @staticmethod
    def of(parts: Iterable[Path]) -> "Lengths":
        """Count lengths of documents on storage."""
        counts = Counter[int]()
        for part in parts:
            for table in iterate_part(part, ["text"]):
                lengths, documents = np.unique(text_chars(table), return_counts=True)
                counts.update(dict(zip(lengths.tolist(), documents.tolist(), strict=True)))
        ordered = np.array(sorted(counts.items()), np.int64).reshape(-1, 2)
        return Lengths(ordered[:, 0], ordered[:, 1])

    def quantile(self, share: float) -> float:
        """Interpolate as `np.quantile` of all lengths does."""
        place = (int(self.documents.sum()) - 1) * share
        low, high = self.characters[np.searchsorted(np.cumsum(self.documents), [int(place), int(np.ceil(place))], side="right")]
        return float(low + (high - low) * (place - int(place)))

    @property
    def total(self) -> int:
        """Characters of all documents."""
        return int(self.characters @ self.documents)


def first_by_reason(tables: Iterable[tuple[str, Path]], samples: int) -> pl.DataFrame:
    """Return stage, id, reason: the first documents by id that each (stage, table) names for each reason."""
    kept = pl.DataFrame(schema={"stage": pl.String, "id": pl.String, "reason": pl.String})
    for stage, path in tables:
        for table in iterate_part(path, ["id", "reason"]):
            named = as_frame(table).select(pl.lit(stage).alias("stage"), "id", "reason")
            kept = pl.concat([kept, named]).sort("stage", "reason", "id")
            kept = kept.filter(pl.int_range(pl.len()).over("stage", "reason") < samples)
    return kept


def first_cuts(parts: Iterable[Path], samples: int) -> list[tuple[str, Span]]:
    """Return (id, its first span) of the first documents by id that a corpus has cut; `parts` of any of its splits."""
    kept = list[tuple[str, Span]]()
    for part in parts:
        for table in iterate_part(part, ["id", "metadata"]):
            cut = ((identity, spans_cut(metadata)) for identity, metadata in as_frame(table).iter_rows())
            kept = sorted([*kept, *((identity, spans[0]) for identity, spans in cut if spans)])[:samples]
    return kept


@dataclass(frozen=True)
class Clusters:
    """Documents of a source that are in clusters, how many of them are removed, and the largest cluster by its
    documents of the source: their number, and `first` (id, is_kept) of them by id.
    """

    documents: int
    gone: int
    largest: int
    first: Sequence[tuple[str, bool]]

    @staticmethod
    def of(table: Path, source: str, shown: int) -> "Clusters":
        """Read `duplicates.parquet`, in which a cluster's rows are consecutive, by id."""
        documents = gone = 0
        kept: list[pl.DataFrame] = []
        members = pl.struct("id", "is_kept")
        for rows in iterate_part(table, ["source", "id", "cluster_id", "is_kept"]):
            own = as_frame(rows).filter(source=source)
            documents, gone = documents + own.height, gone + int((~own["is_kept"]).sum())
            clusters = own.group_by("cluster_id", maintain_order=True).agg(size=pl.len(), first=members.head(shown))
            both = pl.concat([*kept, clusters]).group_by("cluster_id", maintain_order=True)
            first = pl.col("first").list.explode(keep_nulls=False, empty_as_null=False)
            sizes = both.agg(pl.col("size").sum(), first.head(shown))
            largest = sizes["size"].arg_max() or 0
            kept = [sizes[sorted({largest, sizes.height - 1})]] if sizes.height else kept  # The last cluster may continue.
        if not kept:
            return Clusters(0, 0, 0, ())
        size, first = kept[0].sort("size", descending=True, maintain_order=True).select("size", "first").row(0)
        return Clusters(documents, gone, size, tuple((one["id"], one["is_kept"]) for one in first))


@dataclass(frozen=True)
class Matches:
    """Benchmark items in documents: how many documents have one, matches by tier, and the strongest."""

    documents: int
    by_tier: Mapping[str, int]
    strongest: pl.DataFrame

    @staticmethod
    def of(table: Path, shown: int) -> "Matches":
        """Read `matches.parquet`, which is sorted by document; of equal scores the first documents."""
        documents, last, by_tier, parts = 0, None, Counter[str](), list[pl.DataFrame]()
        for rows in map(as_frame, iterate_part(table)):
            documents += rows["id"].n_unique() - (rows["id"].first() == last)
            last = rows["id"].last()
            by_tier.update(dict(rows.group_by("tier").len().iter_rows()))
            best = pl.concat([*parts, rows]).sort(["score", "id"], descending=[True, False], maintain_order=True)
            parts = [best.head(shown)]
        return Matches(documents, dict(sorted(by_tier.items())), parts[0] if parts else pl.DataFrame())
