"""Look up clusters by document. `duplicates.parquet` is sorted by cluster, but a corpus reads documents part by part.

The table is cut into runs, one shard each, that are sorted by source and id, with bounds in the footers of their row
groups. So a part reads only row groups that may hold its ids, one or two of every run. Without this each part would
read the whole table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.documents.parts import as_frame, write_parquet
from lineage.writing.working_folder import SCRATCH_FOLDER
from lineage.writing.writer import Writer

RUN_ROW_GROUPS = 64
"""Rows of the table in one run: 131,072 documents, about 16 MB."""

SCHEMA = pa.schema([("source", pa.string()), ("id", pa.string()), ("cluster_id", pa.string()), ("is_kept", pa.bool_())])


@dataclass(frozen=True)
class ClustersById:
    """Runs of the table. It holds paths only, because it is sent between processes."""

    runs: tuple[Path, ...]
    num_documents: int
    """Return the documents that are in a cluster, of all sources that were asked for."""

    def between(self, source: str, first: str, last: str) -> pl.DataFrame:
        """Return `id`, `cluster_id` and `is_kept` of a source's documents from one id to another, both included.

        Documents that are in no cluster have no row.
        """
        frames = [pl.DataFrame(schema={"id": pl.String, "cluster_id": pl.String, "is_kept": pl.Boolean})]
        for run in self.runs:
            with pq.ParquetFile(run) as file:
                for group in _overlapping(file, source, first, last):
                    rows = as_frame(file.read_row_group(group, use_threads=False))
                    in_range = (pl.col("source") == source) & pl.col("id").is_between(pl.lit(first), pl.lit(last))
                    frames.append(rows.filter(in_range).drop("source"))
        return pl.concat(frames)


def sort_clusters(out: Writer, table: Path, sources: Sequence[str]) -> ClustersById:
    """Sort the clusters of these sources, in shards of the artifact that is being written."""
    groups = pq.read_metadata(table).num_row_groups
    names = {f"clusters-{low:06d}": low for low in range(0, max(groups, 1), RUN_ROW_GROUPS)}
    tasks = {name: (name, table, low, min(low + RUN_ROW_GROUPS, groups), tuple(sources)) for name, low in names.items()}
    done = out.map_shards(sort_run, tasks)
    runs = tuple(_run_file(out.folder, name) for name in names)
    return ClustersById(runs, sum(int(str(statistics["documents"])) for statistics in done.values()))


def sort_run(folder: Path, name: str, table: Path, low: int, high: int, sources: tuple[str, ...]) -> Mapping[str, object]:
    """One shard: sort some row groups of the table."""
    rows = [pl.DataFrame(schema=dict.fromkeys(SCHEMA.names[:3], pl.String) | {"is_kept": pl.Boolean})]
    with pq.ParquetFile(table) as file:
        for group in range(low, high):
            frame = as_frame(file.read_row_group(group, columns=SCHEMA.names, use_threads=False))
            rows.append(frame.filter(pl.col("source").is_in(sources)))
    ordered = pl.concat(rows).sort("source", "id")
    write_parquet(_run_file(folder, name), ordered.to_arrow().cast(SCHEMA))
    return {"documents": ordered.height}


def _run_file(folder: Path, name: str) -> Path:
    return folder / SCRATCH_FOLDER / "clusters" / f"{name}.parquet"


def _overlapping(file: pq.ParquetFile, source: str, first: str, last: str) -> Iterator[int]:
    """Return row groups that may hold one of the ids: rows are sorted by source and id."""
    for index in range(file.num_row_groups):
        of_source, of_id = (file.metadata.row_group(index).column(column).statistics for column in (0, 1))
        within = of_source.min != of_source.max or (of_id.min <= last and first <= of_id.max)
        if of_source.min <= source <= of_source.max and within:
            yield index
