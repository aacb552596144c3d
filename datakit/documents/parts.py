"""Documents on storage: Parquet parts that are sorted by id, written once, read in bounded batches.

Files use zstd level 3 without a dictionary on text: 0.98 of the speed of raw zstd and a third smaller than snappy
(docs/references.md). A row group holds at most 2,048 documents and ends at 16 MiB of text. So reading a part one row
group at a time needs a small multiple of that, for any size of part and documents.

A long text has the bytes of a row group by itself. Statistics of a column copy its least and greatest value several times,
which takes six times the bytes of a long text. A part that is said to hold one (`writing_part`) has no statistics of text, and
its long texts are row groups of their own, so that they need not be copied beside others.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc  # A table's first cast would import it: 0.03 s in which all workers wait for the parent.
import pyarrow.parquet as pq

from datakit.documents.schemas import DOCUMENT_SCHEMA, ID, TEXT, check_schema
from lineage.artifact.store import Artifact
from lineage.storage.digests import Digested, DigestedFile

ROW_GROUP_ROWS = 2_048
ROW_GROUP_TEXT_BYTES = 16 << 20
LONG_TEXT_BYTES = ROW_GROUP_TEXT_BYTES
LOOKED_AT_ROWS = 64
TARGET_PART_BYTES = 256 << 20
DOCUMENTS = "documents"
DICTIONARY_COLUMNS = ("source", "reason", "kind", "tier", "task", "suite")


def part_name(index: int, count: int) -> str:
    """`part-00000-of-00106.parquet`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


@dataclass
class PartWriter:
    """Write rows of one part as they arrive. Row groups end by rows and text, not where the batches end."""

    path: Path
    file: pq.ParquetWriter
    schema: pa.Schema
    long_texts: bool = False
    rows: int = 0
    digested: Digested | None = None
    """Of the whole file, once it is closed."""

    _pending: list[pa.Table] = field(default_factory=list)
    _pending_rows: int = 0
    _pending_bytes: int = 0

    def write(self, batch: pa.Table) -> None:
        """Append rows. Raises ValueError, with both schemas, for a batch of another schema."""
        check_schema(batch, self.schema, str(self.path))
        sizes = text_bytes(batch) if TEXT in self.schema.names else np.zeros(batch.num_rows, np.int64)
        start = 0
        alone = (sizes >= LONG_TEXT_BYTES) & self.long_texts
        while start < batch.num_rows:
            is_alone = alone[start]
            if is_alone:
                self.flush()
            room = 1 if is_alone else ROW_GROUP_ROWS - self._pending_rows
            filled = self._pending_bytes + np.cumsum(sizes[start : start + room])
            take = min(int(np.searchsorted(filled, ROW_GROUP_TEXT_BYTES)) + 1, filled.size)
            if not is_alone and alone[start : start + take].any():
                take = int(np.argmax(alone[start:]))
            self._pending.append(batch.slice(start, take))
            self._pending_rows += take
            self._pending_bytes = int(filled[take - 1])
            start += take
            if is_alone or self._pending_rows == ROW_GROUP_ROWS or self._pending_bytes >= ROW_GROUP_TEXT_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what is pending as one row group."""
        if self._pending:
            group = pa.concat_tables(
                self._pending
            ).combine_chunks()  # Page bounds follow chunks, and the bytes must not depend on batches.
            self.file.write_table(group, row_group_size=group.num_rows)
            self.rows += group.num_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


@contextmanager
def writing_part(path: Path, schema: pa.Schema = DOCUMENT_SCHEMA, long_texts: bool = False) -> Iterator[PartWriter]:
    """Write one Parquet file batch by batch, with the lab's compression. A part without a batch is a file without rows.

    `long_texts`: whether a text of `LONG_TEXT_BYTES` or more comes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "use_dictionary": [name for name in schema.names if name in DICTIONARY_COLUMNS] or False,
        "write_statistics": [name for name in schema.names if name != TEXT] if long_texts else True,
    }
    with (
        closing(DigestedFile(path)) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", compression_level=3, **options) as file,
    ):
        part = PartWriter(path, file, schema, long_texts)
        yield part
        part.flush()
    part.digested = stream.digested()


def has_long_texts(part: Path) -> bool:
    """Whether a part was written with `long_texts`: then its texts have no statistics."""
    metadata = pq.read_metadata(part)
    column = metadata.schema.to_arrow_schema().get_field_index(TEXT)
    return metadata.num_row_groups > 0 and not metadata.row_group(0).column(column).is_stats_set


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table in memory as one file."""
    with writing_part(path, table.schema) as part:
        part.write(table)


def write_sorted_parts(
    folder: Path,
    split: str,
    documents: pl.DataFrame,
    target_bytes: int = TARGET_PART_BYTES,
    schema: pa.Schema = DOCUMENT_SCHEMA,
) -> int:
    """Write documents in memory below `folder/split/`, sorted by id, in parts as `part_bounds` cuts them; return how
    many.

    Raises: ValueError if an id occurs twice.
    """
    ordered = documents.sort(ID)
    if ordered[ID].n_unique() != ordered.height:
        raise ValueError(f"{split}: {ordered.height - ordered[ID].n_unique()} ids occur twice; documents must be unique")
    size = int(ordered[TEXT].str.len_bytes().cast(pl.Int64).sum() or 0) if TEXT in ordered.columns else 0
    bounds = part_bounds(ordered.height, size, target_bytes)
    for index, (start, stop) in enumerate(bounds):
        part = ordered[start:stop].select(schema.names).to_arrow().cast(schema)
        write_parquet(folder / split / part_name(index, len(bounds)), part)
    return len(bounds)


def part_bounds(rows: int, num_bytes: int, target_bytes: int = TARGET_PART_BYTES) -> list[tuple[int, int]]:
    """Return (first row, end row) of every part: equal numbers of rows, as many as give `target_bytes` of text each.

    Rows in id order are in random order, so equal numbers of rows have equal sizes.
    """
    count = max(1, -(-num_bytes // target_bytes))
    return [(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def text_size(metadata: pq.FileMetaData) -> tuple[int, int]:
    """Return (rows, bytes of text) of a part from its footer: text is stored plainly, so its size is the text's plus 4
    bytes a row.
    """
    column = metadata.schema.to_arrow_schema().get_field_index(TEXT)
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return metadata.num_rows, sum(group.column(column).total_uncompressed_size for group in groups)


def document_paths(artifact: Artifact, split: str = DOCUMENTS) -> list[Path]:
    """Return the parts of a split in id order. Raises: ValueError if the artifact has none."""
    paths = artifact.files(".parquet", under=f"{split}/")
    if not paths:
        raise ValueError(f"{artifact.name} has no documents under {split}/")
    return paths


def read_documents(artifact: Artifact, split: str = DOCUMENTS, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return every document of a split, in id order, in memory: for tests and for small artifacts."""
    return pl.concat([pl.read_parquet(p, columns=list(columns) if columns else None) for p in document_paths(artifact, split)])


def iterate_part(
    path: Path, columns: Sequence[str] | None = None, start: int = 0, stop: int | None = None
) -> Iterator[pa.Table]:
    """Yield rows `[start, stop)` of a part, one row group at a time; row groups outside are not read.

    The calling thread decodes alone, here and wherever a shard reads. The text is nearly all of a row group, so columns
    gain nothing from threads; with two workers on two cores, thread switches took 8 % of a corpus's time (2026-11-23).
    """
    with pq.ParquetFile(path) as file:
        for group, low, high in row_ranges(file, start, stop):
            table = file.read_row_group(group, columns=list(columns) if columns else None, use_threads=False)
            yield table.slice(low, high - low)


def iterate_rows(path: Path, rows: np.ndarray, columns: Sequence[str]) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Yield ascending `rows` of a part with their numbers, one row group at a time; row groups without one are not read."""
    with pq.ParquetFile(path) as file:
        first = 0
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            wanted = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)]
            if wanted.size:
                table = file.read_row_group(group, columns=list(columns), use_threads=False)
                yield wanted, table.take(pa.array(wanted - first))
            first = end


def iterate_texts(path: Path) -> Iterator[list[str]]:
    """Yield texts of a part in small batches, for readers of the first few: they need no whole row group."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(LOOKED_AT_ROWS, columns=[TEXT], use_threads=False):
            yield batch[TEXT].to_pylist()


def first_documents(documents: Artifact, count: int) -> list[tuple[str, str]]:
    """Return (id, text) of the first documents by id. Ids are hashes, so this is a random sample."""
    found: list[tuple[str, str]] = []
    for path in document_paths(documents):
        for table in iterate_part(path, [ID, TEXT]):
            found += as_frame(table).select(ID, TEXT).head(count - len(found)).rows()
            if len(found) == count:
                return found
    return found


def texts_of(paths: Sequence[Path], ids: Iterable[str]) -> dict[str, str]:
    """Return texts of some documents of parts that are sorted by id; row groups that cannot hold one of them are not
    read.
    """
    wanted, texts = sorted(set(ids)), dict[str, str]()
    for path in paths:
        with pq.ParquetFile(path) as file:
            column = file.schema_arrow.get_field_index(ID)
            for group in range(file.num_row_groups):
                bounds = file.metadata.row_group(group).column(column).statistics
                in_group = wanted[bisect_left(wanted, bounds.min) : bisect_right(wanted, bounds.max)]
                if in_group:
                    rows = as_frame(file.read_row_group(group, columns=[ID, TEXT], use_threads=False))
                    texts |= dict(rows.filter(pl.col(ID).is_in(in_group)).select(ID, TEXT).iter_rows())
        if len(texts) == len(wanted):
            break
    return texts


def row_ranges(file: pq.ParquetFile, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield (row group, first row in it, end row in it) of every row group that holds some of the rows `[start, stop)`
    of a part.
    """
    first = 0
    for group in range(file.num_row_groups):
        end = first + file.metadata.row_group(group).num_rows
        low, high = max(start, first), end if stop is None else min(stop, end)
        if low < high:
            yield group, low - first, high - first
        first = end


def value_counts(values: pl.Series) -> dict[str, int]:
    """Return how often each value occurs in a column."""
    return dict(values.value_counts().iter_rows())


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add counts by value, and return them in the order of values.

    >>> added([{"b": 1}, {"a": 2, "b": 3}])
    {'a': 2, 'b': 4}
    """
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def iterate_documents(
    artifact: Artifact, split: str = DOCUMENTS, columns: Sequence[str] | None = None
) -> Iterator[pl.DataFrame]:
    """Yield documents of a split in id order, one row group at a time: memory stays bounded at any size."""
    for path in document_paths(artifact, split):
        for table in iterate_part(path, columns):
            yield as_frame(table)


def as_frame(table: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a polars frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def slices(documents: pl.DataFrame, chars: int) -> Iterator[pl.DataFrame]:
    """Yield runs of documents of about `chars` characters of `text`; a longer document is alone or ends its run."""
    number = documents["text"].str.len_chars().cast(pl.Int64).cum_sum().shift(1, fill_value=0) // chars
    bounds = [0, *((number.diff().fill_null(0) != 0).arg_true()), documents.height]
    yield from (documents[start:end] for start, end in pairwise(bounds))


def text_bytes(table: pa.Table) -> np.ndarray:
    """Return int64 [rows]: bytes of every text."""
    return pc.call_function("binary_length", [table[TEXT]]).to_numpy().astype(np.int64)


def text_chars(table: pa.Table) -> np.ndarray:
    """Return int64 [rows]: characters of every text."""
    return pc.call_function("utf8_length", [table[TEXT]]).to_numpy().astype(np.int64)
