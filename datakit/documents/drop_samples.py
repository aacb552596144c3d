"""The first few drops of every reason, in the order of a source, gathered by many shards in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from datakit.documents.parts import write_parquet
from datakit.documents.schemas import DROPPED_SCHEMA

SAMPLES_PER_REASON = 20
SAMPLE_CHARS = 200
EXACT_DUPLICATE = "exact_duplicate"
_SCHEMA = pa.schema([*DROPPED_SCHEMA, pa.field("order", pa.int64())])


@dataclass
class DropSamples:
    """What one shard dropped: the count for each reason, and the first drops."""

    counts: Counter[str] = field(default_factory=Counter)
    rows: list[tuple[str, str, str, int]] = field(default_factory=list)

    def add(self, source_id: str, reason: str, sample: str, order: int) -> None:
        """Count a dropped record; records arrive in order."""
        self.counts[reason] += 1
        if self.counts[reason] <= SAMPLES_PER_REASON:
            self.rows.append((source_id, reason, sample, order))

    def add_repeated(self, documents: pl.DataFrame) -> None:
        """Count documents that repeat the id of another. They arrive in the order of ids, so the first ones are chosen
        again.
        """
        if not documents.height:
            return
        self.counts[EXACT_DUPLICATE] += documents.height
        first = documents.bottom_k(SAMPLES_PER_REASON, by="order").select(
            pl.col("metadata").str.json_path_match("$.source_id"),
            pl.lit(EXACT_DUPLICATE),
            pl.col("text").str.slice(0, SAMPLE_CHARS),
            "order",
        )
        self.rows = first_of_each([*self.rows, *first.iter_rows()])

    def write(self, path: Path) -> None:
        """Save the samples for `joined`."""
        write_parquet(path, _table(self.rows, _SCHEMA))


def joined(paths: Iterable[Path]) -> pa.Table:
    """Return the first drops of every reason over all shards, in the order of the source."""
    rows: list[tuple[str, str, str, int]] = []
    for path in paths:
        rows = first_of_each([*rows, *pl.read_parquet(path).iter_rows()])
    return _table([row[:-1] for row in rows], DROPPED_SCHEMA)


def first_of_each(rows: Sequence[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    """Return the first `SAMPLES_PER_REASON` rows of every reason, by their order."""
    kept, seen = [], Counter[str]()
    for row in sorted(rows, key=lambda row: row[-1]):
        seen[row[1]] += 1
        if seen[row[1]] <= SAMPLES_PER_REASON:
            kept.append(row)
    return kept


def _table(rows: Sequence[tuple], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    return pa.Table.from_arrays([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
