"""Documents on storage: Parquet parts that are sorted by id, written once, read in bounded batches.

zstd level 3 without a dictionary on text: 0.98 of the speed of raw zstd and a third smaller than snappy (research/
data_peers_measured.md, section 5). Row groups of 2,048 documents keep a reader's memory bounded.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.schemas import DOCUMENT_SCHEMA, ID, TEXT
from lineage.store import Artifact

ROW_GROUP_ROWS = 2_048
TARGET_PART_BYTES = 256 << 20
DOCUMENTS = "documents"


def part_name(index: int, count: int) -> str:
    """`part-00000-of-00106.parquet`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write one Parquet file the way every artifact's file is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dictionary = [name for name in table.column_names if name in ("source", "reason", "kind", "tier", "task", "suite")]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=3,
        use_dictionary=dictionary or False,
        row_group_size=ROW_GROUP_ROWS,
        write_statistics=True,
    )


def write_sorted_parts(
    folder: Path,
    split: str,
    documents: pl.DataFrame,
    target_bytes: int = TARGET_PART_BYTES,
    schema: pa.Schema = DOCUMENT_SCHEMA,
) -> int:
    """Write documents below `folder/split/` as parts of about `target_bytes` of text, sorted by id; how many parts.

    Raises: ValueError when an id stands twice.
    """
    ordered = documents.sort(ID)
    if ordered[ID].n_unique() != ordered.height:
        raise ValueError(f"{split}: {ordered.height - ordered[ID].n_unique()} ids stand twice; documents must be unique")
    size = int(ordered[TEXT].str.len_bytes().sum() or 0) if TEXT in ordered.columns else 0
    count = max(1, -(-size // target_bytes))
    bounds = [ordered.height * i // count for i in range(count + 1)]
    for index in range(count):
        part = ordered[bounds[index] : bounds[index + 1]].select(schema.names).to_arrow().cast(schema)
        write_parquet(folder / split / part_name(index, count), part)
    return count


def document_paths(artifact: Artifact, split: str = DOCUMENTS) -> list[Path]:
    """The parts of a split, in id order. Raises ValueError when the artifact has none."""
    paths = artifact.files(".parquet", under=f"{split}/")
    if not paths:
        raise ValueError(f"{artifact.name} has no documents under {split}/")
    return paths


def read_documents(artifact: Artifact, split: str = DOCUMENTS, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Every document of a split, in id order."""
    return pl.concat([pl.read_parquet(p, columns=list(columns) if columns else None) for p in document_paths(artifact, split)])


def iterate_documents(
    artifact: Artifact, split: str = DOCUMENTS, columns: Sequence[str] | None = None, batch_rows: int = ROW_GROUP_ROWS
) -> Iterator[pl.DataFrame]:
    """Documents of a split in id order, a batch at a time: memory stays bounded whatever the size."""
    for path in document_paths(artifact, split):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_rows, columns=list(columns) if columns else None):
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                yield frame
