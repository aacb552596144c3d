"""An external sort of documents by id that keeps the first of equal ids: sorted runs on disk, then a merge by range of
ids.

Runs are Arrow files of small blocks, compressed with lz4: with zstd-1 they are a third smaller, and normalization takes a
sixth more CPU seconds. A block that lies across the ends of two ranges is read for both, so blocks are small and runs are
long. A merge reads all runs together, in rounds. It holds a stretch of blocks of each run, `held_blocks` over all runs or
one of each, and a round takes the rows up to the median of the ids with which the runs' stretches end; runs that end before
it read another stretch. Ids are hashes, so the stretches of all runs cover about the same range, and a round takes about
what is in memory. (Up to the smallest of those ids a round would take a share of one stretch: rounds would grow with the
square of the runs.)

Memory: `run_bytes` of text while runs are made, `2 * fan_in * block_bytes` at most while they are merged, plus the longest
documents. More than `fan_in` runs are merged in groups first: one more pass from about 4 GB of plain JSONL (runs of
`shard_bytes`) and 16 GB of compressed files, a second from 2 and 8 TB.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import compress, pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents.parts import LONG_TEXT_BYTES, as_frame, text_bytes
from datakit.documents.schemas import DOCUMENT_SCHEMA, ID

RUN_SCHEMA = pa.schema([*DOCUMENT_SCHEMA, pa.field("order", pa.int64())])
"""`order` numbers records over the whole source: of equal ids the lowest stays."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""No threads: workers are the parallelism, and handing small blocks to threads takes a fifth of the writing."""

_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_READ_ONLY_IDS = pa.ipc.IpcReadOptions(included_fields=[0], use_threads=False)
"""Without texts: they are not decompressed to find a place."""


@dataclass(frozen=True)
class Cut:
    """How the work is cut. Tests vary it: no output depends on it."""

    shard_bytes: int = 8 << 20
    """Raw bytes of one shard of parsing."""

    run_bytes: int = 32 << 20
    block_bytes: int = 64 << 10
    fan_in: int = 512
    rewritten_bytes: int = 1 << 30
    """A larger gzip member or zstd frame is first written as files of lines, which are read in parallel."""

    @property
    def held_blocks(self) -> int:
        """Blocks of all runs together that a merge holds: four times as many took twice the time, because a round's copies of
        texts then are in new memory of the system (2026-11-27).
        """
        return self.fan_in // 2

    def __post_init__(self) -> None:
        for name, least in (("shard_bytes", 1), ("run_bytes", 1), ("block_bytes", 1), ("fan_in", 2), ("rewritten_bytes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"cut.{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class IdRange:
    """Ids `low <= id < high`; equal shares of the id space hold about equally many documents."""

    low: str = ""
    high: str = "g"
    """Above every hex digit."""

    @staticmethod
    def share(index: int, count: int) -> "IdRange":
        """Return one of `count` equal shares."""
        low, high = (f"{(i << 128) // count:032x}" for i in (index, index + 1))
        return IdRange(low, high if index + 1 < count else "g")

    def __contains__(self, id: str) -> bool:
        return self.low <= id < self.high


type Row = tuple[str, bytes, str, str, int]
"""id, text in UTF-8, source, metadata, order."""


@dataclass
class RunWriter:
    """Documents of one shard, written as sorted runs `<stem>-00000.arrow`, ... whenever `run_bytes` of text have
    arrived.
    """

    folder: Path
    stem: str
    cut: Cut
    on_repeated: Callable[[pl.DataFrame], None]
    """Receives the rows that repeat an id of their run; the run leaves them out."""

    runs: list[str] = field(default_factory=list)
    documents: int = 0
    text_bytes: int = 0
    long_texts: list[str] = field(default_factory=list)
    """Ids of texts of `LONG_TEXT_BYTES` and more."""

    _rows: list[Row] = field(default_factory=list)
    _held_bytes: int = 0

    def add(self, row: Row) -> None:
        """Add a document; write a run if there are enough, or if it is long."""
        size = len(row[1])
        if is_long := size >= LONG_TEXT_BYTES:
            self.flush()  # a run of its own: its text is not copied beside others
            self.long_texts.append(row[0])
        self._rows.append(row)
        self._held_bytes += size
        self.documents += 1
        self.text_bytes += size
        if is_long or self._held_bytes >= self.cut.run_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the held documents as one run."""
        if not self._rows:
            return
        rows = sorted(self._rows, key=itemgetter(0, -1))
        self._rows, self._held_bytes = [], 0
        is_first = [True, *(earlier[0] != later[0] for earlier, later in pairwise(rows))]
        self.runs.append(f"{self.stem}-{len(self.runs):05d}.arrow")
        with writing_run(self.folder / self.runs[-1]) as file:
            write_blocks(file, _table(list(compress(rows, is_first))), self.cut.block_bytes)
        if repeated := [row for row, first in zip(rows, is_first, strict=True) if not first]:
            self.on_repeated(as_frame(_table(repeated)))


def _table(rows: Sequence[Row]) -> pa.Table:
    ids, texts, *others = zip(*rows, strict=True)
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    text = pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
    columns = [pa.array(ids), text, *map(pa.array, others)]
    return pa.Table.from_arrays(columns, schema=RUN_SCHEMA)


def merged(runs: Sequence[Path], ids: IdRange, held_blocks: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield (documents, rows that repeat an id) of all runs in a range, one round at a time; documents in id order,
    each id once.

    `held_blocks`: of all runs together, at least one of each.
    """
    stretch = max(1, held_blocks // max(1, len(runs)))
    with ExitStack() as stack:
        cursors = [_Cursor.open(stack.enter_context(pa.OSFile(str(run))), ids, stretch) for run in runs]
        while live := [cursor for cursor in cursors if cursor.fill()]:
            ends = sorted(cursor.last_id for cursor in live if cursor.has_more)
            bound = ends[len(ends) // 2] if ends else None
            yield first_of_equal(pa.concat_tables([cursor.take(bound) for cursor in live if cursor.fill(bound)]))


def first_of_equal(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows sorted by id, the row of the lowest `order` for each id, and the other rows. Only ids and numbers are
    sorted: texts are copied once, or not if they are in order.
    """
    keys = as_frame(rows.select([ID, "order"])).with_row_index("row").sort(ID, "order")
    is_first = keys[ID].ne_missing(keys[ID].shift(1))
    if is_first.all() and keys["row"].is_sorted():
        return rows, rows.slice(0, 0)
    kept, repeated = (gathered(rows, keys["row"].filter(mask).to_numpy().astype(np.int64)) for mask in (is_first, ~is_first))
    return kept, repeated


def gathered(rows: pa.Table, order: np.ndarray) -> pa.Table:
    """Return rows in an order. Arrow's `take` copies all texts twice; long ones are not copied here.

    `order`: int64 [rows of the result].
    """
    long = np.flatnonzero(text_bytes(rows) >= LONG_TEXT_BYTES)
    if not long.size:
        return rows.take(pa.array(order))
    edges = [-1, *long.tolist(), rows.num_rows]
    others = pa.concat_tables([rows.slice(before + 1, after - before - 1) for before, after in pairwise(edges)])
    row_of_others, is_long = order - np.searchsorted(long, order), np.isin(order, long)
    cuts = np.flatnonzero(is_long[1:] | is_long[:-1]) + 1
    pieces = [
        rows.slice(order[start], 1) if is_long[start] else others.take(pa.array(row_of_others[start:stop]))
        for start, stop in pairwise([0, *cuts.tolist(), order.size])
        if start < stop
    ]
    return pa.concat_tables([rows.slice(0, 0), *pieces])


@dataclass
class _Cursor:
    """The position of a merge in one run: rows of its stretch of blocks that are still to be taken, and the next block."""

    reader: pa.RecordBatchFileReader
    ids: IdRange
    stretch: int
    next: int
    stop: int
    """The first block that begins above the range."""

    rows: pa.Table = field(default_factory=RUN_SCHEMA.empty_table)
    row_ids: list[str] = field(default_factory=list)
    """Ids of the rows as a list: a search in a list takes microseconds, in a column a tenth of a millisecond."""

    @staticmethod
    def open(file: pa.NativeFile, ids: IdRange, stretch: int) -> "_Cursor":
        """Return the position at the last block that begins at or below the range."""
        reader, only_ids = (pa.ipc.open_file(file, options=options) for options in (_READ_OPTIONS, _READ_ONLY_IDS))
        blocks = range(reader.num_record_batches)
        after = bisect_right(blocks, ids.low, key=lambda i: _first_id(only_ids, i))
        stop = bisect_left(blocks, ids.high, key=lambda i: _first_id(only_ids, i))
        return _Cursor(reader, ids, stretch, max(0, after - 1), stop)

    @property
    def last_id(self) -> str:
        return self.row_ids[-1]

    @property
    def has_more(self) -> bool:
        """Whether blocks of the range may follow."""
        return self.next < self.stop

    def fill(self, bound: str | None = None) -> bool:
        """Read on when all rows were taken, or until they reach an id; return False at the end of the range."""
        read: list[pa.Table] = []
        while self.has_more and (not self.row_ids or (bound is not None and self.last_id < bound)):
            end = min(self.next + self.stretch, self.stop)
            blocks = pa.Table.from_batches([self.reader.get_batch(i) for i in range(self.next, end)])
            ids = as_frame(blocks.select([ID]))[ID].to_list()
            start, stop = (bisect_left(ids, edge) for edge in (self.ids.low, self.ids.high))
            read.append(blocks.slice(start, stop - start))
            self.next, self.row_ids = end, self.row_ids + ids[start:stop]
        if read:
            self.rows = pa.concat_tables([self.rows, *read] if self.rows.num_rows else read)
        return bool(self.row_ids)

    def take(self, bound: str | None) -> pa.Table:
        """Return the rows up to and including an id; all of them if there is none."""
        count = self.rows.num_rows if bound is None else bisect_right(self.row_ids, bound)
        taken, self.row_ids = self.rows.slice(0, count), self.row_ids[count:]
        self.rows = self.rows.slice(count) if self.row_ids else RUN_SCHEMA.empty_table()  # A slice holds all texts.
        return taken


def _first_id(reader: pa.RecordBatchFileReader, index: int) -> str:
    return reader.get_batch(index).column("id")[0].as_py()


@contextmanager
def writing_run(path: Path) -> Iterator[pa.RecordBatchFileWriter]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(path), RUN_SCHEMA, options=_OPTIONS) as file:
        yield file


def write_blocks(file: pa.RecordBatchFileWriter, rows: pa.Table, block_bytes: int) -> None:
    """Append rows as blocks that begin where another `block_bytes` of text begin."""
    if not rows.num_rows:
        return
    sizes = text_bytes(rows).astype(np.int64)
    block = (np.cumsum(sizes) - sizes) // block_bytes
    starts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), rows.num_rows]
    for start, stop in pairwise(starts):
        file.write_table(rows.slice(start, stop - start).combine_chunks())
