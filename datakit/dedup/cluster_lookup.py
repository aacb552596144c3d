"""Look up clusters by document. `duplicates.parquet` is sorted by cluster, but a corpus reads documents part by part.

A shuffle brings the rows into ranges of ids, each sorted by source and id. A part's documents are a range of ids of one
source, so it reads a run of rows from the few files that hold its ids: all parts together open about as many files as
there are parts and files, for each source.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.dedup.numbered import kept
from datakit.documents.parts import as_frame
from datakit.text.arrays import load
from lineage.tables.local import LocalEngine
from lineage.tables.ranges import sorted_by
from lineage.tables.shuffle import Shuffle, grouped, range_count, range_of
from lineage.writing.working_folder import SCRATCH_FOLDER
from lineage.writing.writer import Writer

ROW_BYTES = 48
COLUMNS = ("source", "id", "cluster_id", "is_kept")


@dataclass(frozen=True)
class ClustersById:
    """Files of the table's rows by range of ids. It holds paths only, because it is sent between processes."""

    paths: tuple[Path, ...]
    sources: tuple[str, ...]
    num_documents: int
    """Documents that are in a cluster, of all sources that were asked for."""

    def between(self, source: str, first: str, last: str) -> pl.DataFrame:
        """Return `id`, `cluster_id` and `is_kept` of a source's documents from one id to another, both included.

        Documents that are in no cluster have no row. Without a last id ("") there is none.
        """
        found = [np.zeros((0, 6), np.uint64)]
        if last:
            rank = self.sources.index(source)
            low, high = ((rank, *_halves([each])[0].tolist()) for each in (first or "0" * 32, last))
            begin, end = range_of(np.array([low[1], high[1]], np.uint64), len(self.paths), spread=False).tolist()
            found += [_between(load(path), low, high) for path in self.paths[begin : end + 1]]
        rows = np.concatenate(found)
        return pl.DataFrame(
            {
                "id": pl.Series(_hex(rows[:, 1:3]), dtype=pl.String),
                "cluster_id": pl.Series(_hex(rows[:, 3:5]), dtype=pl.String),
                "is_kept": rows[:, 5] == 1,
            }
        )


def sort_clusters(out: Writer, table: Path, sources: Sequence[str], documents: int, workers: int | None = None) -> ClustersById:
    """Sort the clusters of these sources, which have so many documents, in shards of the artifact that is being written."""
    metadata = pq.read_metadata(table)
    size = min(metadata.num_rows, documents) * ROW_BYTES
    groups = grouped(range(max(1, metadata.num_row_groups)), size)
    tasks = [(table, tuple(sources), low.start, min(low.stop, metadata.num_row_groups)) for low in map(_span, groups)]
    step = Shuffle("clusters-by-id", rows_of_sources, tasks, "high", by_source_and_id, range_count(size))
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    found = engine.shuffle(out, step)
    paths = kept(engine, found, out.folder / SCRATCH_FOLDER, "clusters-by-id")
    return ClustersById(paths, tuple(sources), sum(part.rows for part in found))


def rows_of_sources(table: Path, sources: tuple[str, ...], first: int, last: int) -> pa.Table:
    """Return the rows of these sources in some row groups, in numbers: ids as two halves, sources by their place."""
    rows = [pl.DataFrame(schema=dict.fromkeys(COLUMNS[:3], pl.String) | {"is_kept": pl.Boolean})]
    with pq.ParquetFile(table) as file:
        for group in range(first, last):
            frame = as_frame(file.read_row_group(group, columns=list(COLUMNS), use_threads=False))
            rows.append(frame.filter(pl.col("source").is_in(sources)))
    frame = pl.concat(rows)
    ranks = {name: rank for rank, name in enumerate(sources)}
    ids, clusters = _halves(frame["id"].to_list()), _halves(frame["cluster_id"].to_list())
    columns = (
        frame["source"].replace_strict(ranks, return_dtype=pl.UInt64).to_numpy(),
        *(np.ascontiguousarray(half) for half in (*ids.T, *clusters.T)),
        frame["is_kept"].to_numpy().astype(np.uint64),
    )
    names = ("rank", "high", "low", "cluster_high", "cluster_low", "kept")
    return pa.table(dict(zip(names, columns, strict=True)))


def by_source_and_id(rows: pa.Table) -> pa.Table:
    """Sort the rows of a range."""
    return sorted_by(rows, "rank", "high", "low")


def _span(groups: Sequence[int]) -> range:
    return range(groups[0], groups[-1] + 1)


def _between(rows: np.ndarray, low: tuple[int, ...], high: tuple[int, ...]) -> np.ndarray:
    """Return the rows from one (rank, high, low) to another; it touches a few pages of a mapped file."""
    numbers = range(len(rows))
    start = bisect_left(numbers, low, key=lambda row: tuple(rows[row, :3].tolist()))
    return rows[start : bisect_right(numbers, high, key=lambda row: tuple(rows[row, :3].tolist()))]


def _halves(ids: Sequence[str]) -> np.ndarray:
    """Return uint64 [ids, 2]."""
    return np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64).reshape(-1, 2)


def _hex(halves: np.ndarray) -> list[str]:
    text = halves.astype(">u8").tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]
