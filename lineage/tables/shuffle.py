"""The one operation that moves rows between tasks: read tables, bring equal keys together, reduce each range of keys.

Sorting, grouping, distinct rows and joins are functions of one range (`lineage.tables.ranges`), so an engine implements
only `TableEngine.shuffle`. The functions take and return plain Arrow tables and do not know which engine calls them.
The rows of a range arrive in the order of the tasks. So the result is a function of the inputs: it depends on neither
the engine, nor the number of workers, nor which of them died. Ranges are equal shares of 64-bit keys. Keys that are not
hashes are hashed first (`spread`), or are shared out as numbers below a bound (`below`), so that ranges are in order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import xxhash

RANGE_BYTES = 16 << 20
FEW = 128
"""Beyond 2 GiB ranges and tasks grow instead of their number: tasks times ranges is the number of opened files."""

LARGEST_BYTES = 5 << 29
"""Beyond 320 GiB there are more again: the task of a range takes up to five times its bytes, here 13 GiB, where a quarter of
the rows repeat, and ten times for bands where nine in ten do (`benchmarks/reduce_memory.py`)."""

MOST = 1 << 16
"""Numbers of ranges are held in 16 bits."""


@dataclass(frozen=True)
class Part:
    """One table that an engine holds: the rows of one range."""

    rows: int
    bytes: int
    digest: str
    held: Any = field(repr=False)
    """A path, or the engine's own reference."""


@dataclass(frozen=True)
class Shuffle:
    """What to read, by which key its rows meet, and what becomes of each range."""

    name: str
    read: Callable[..., pa.Table]
    """Returns the rows of one task. A `Part` among a task's arguments arrives as its table."""

    tasks: Sequence[tuple[object, ...]]
    key: str
    """A uint64 or int64 column."""

    reduce: Callable[[pa.Table], pa.Table]
    """Receives the rows of one range. Rows of equal keys are in the same range."""

    ranges: int = 1
    spread: bool = False
    """Whether keys are numbers, not hashes; then ranges are shares of their hashes."""

    below: int | None = None
    """A number above all keys; then range `i` has the `i`-th run of numbers."""

    def __post_init__(self) -> None:
        if not 1 <= self.ranges <= MOST:
            raise ValueError(f"shuffle {self.name} has {self.ranges} ranges; allowed: 1 to {MOST}")
        if not 1 <= len(self.tasks) <= MOST:
            raise ValueError(
                f"shuffle {self.name} has {len(self.tasks)} tasks; allowed: 1 to {MOST}; group what they read (`grouped`)"
            )


@dataclass(frozen=True)
class Moved:
    """What one shuffle moved, in bytes of Arrow buffers."""

    name: str
    shuffled: int
    """Bytes that the tasks handed to the ranges."""

    written: int
    """Bytes that the ranges gave back."""


class Shards(Protocol):
    """What an engine needs of `lineage.writing.writer.Writer`."""

    folder: Path

    def map_shards(
        self, function: Callable[..., Mapping[str, Any]], tasks: Mapping[str, tuple[object, ...]], workers: int | None = None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Run shards that survive a kill, and return their statistics by name."""
        ...


class TableEngine(Protocol):
    """Runs shuffles."""

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Return the reduced ranges, in the order of the ranges.

        Raises: IncompleteError or the engine's own error, naming the step, if a task fails for good.
        """
        ...

    def table(self, part: Part) -> pa.Table:
        """Return the rows of one part."""
        ...


def range_count(total_bytes: int) -> int:
    """Return how many ranges keep each one near `RANGE_BYTES`; `FEW` if that is enough, more only for `LARGEST_BYTES`.

    >>> range_count(10), range_count(33 << 20), range_count(100 << 30), range_count(1 << 40)
    (1, 3, 128, 410)
    """
    return max(1, min(FEW, -(-total_bytes // RANGE_BYTES)), min(MOST, -(-total_bytes // LARGEST_BYTES)))


def task_count(items: int, total_bytes: int) -> int:
    """Return how many tasks read `items` items that give `total_bytes` bytes together (`grouped`)."""
    return min(items, range_count(total_bytes))


def tasks_of(parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """Return tasks that read the parts of an earlier shuffle."""
    return [tuple(group) for group in grouped(parts, sum(part.bytes for part in parts))]


def joined(*tables: pa.Table) -> pa.Table:
    """Return the rows of parts as one table: what a task reads that changes nothing."""
    return pa.concat_tables(tables)


def grouped[T](items: Sequence[T], total_bytes: int) -> list[Sequence[T]]:
    """Cut items that give `total_bytes` bytes together into runs of neighbours: one task for each `RANGE_BYTES`.

    A task costs milliseconds, so small inputs share one.

    >>> grouped([1, 2, 3, 4, 5], 20 << 20), grouped([1, 2], 1)
    ([[1, 2], [3, 4, 5]], [[1, 2]])
    """
    count = task_count(len(items), total_bytes)
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]


def split(step: Shuffle, arguments: Sequence[object]) -> list[pa.Table]:
    """Return one task's rows by range; rows of a range keep their order."""
    rows = step.read(*arguments)
    if step.ranges == 1:
        return [rows]
    index = range_of(rows[step.key].to_numpy().view(np.uint64), step.ranges, spread=step.spread, below=step.below)
    order = np.argsort(index, kind="stable")
    bounds = np.searchsorted(index[order], np.arange(step.ranges + 1))
    ordered = rows.take(pa.array(order))
    return [ordered.slice(start, stop - start) for start, stop in pairwise(bounds.tolist())]


def range_of(keys: np.ndarray, ranges: int, *, spread: bool, below: int | None = None) -> np.ndarray:
    """Return uint16 [keys]: the range of each key."""
    if below is not None:
        return (keys * np.uint64(ranges) // np.uint64(below)).astype(np.uint16)
    if spread:
        keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return (((keys >> np.uint64(32)) * np.uint64(ranges)) >> np.uint64(32)).astype(np.uint16)


def table_digest(table: pa.Table) -> str:
    """Return a digest of the values of a table of fixed-width columns without nulls."""
    digest = xxhash.xxh3_128()
    for column in table.columns:
        digest.update(np.ascontiguousarray(column.to_numpy()))
    return digest.hexdigest()


def saved(path: Path, tables: Sequence[pa.Table]) -> int:
    """Write each table as one record batch of an Arrow file, and return the bytes of their buffers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(path), tables[0].schema, options=pa.ipc.IpcWriteOptions(use_threads=False)) as file:
        for table in tables:
            batches = table.combine_chunks().to_batches()
            file.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))
    return sum(table.nbytes for table in tables)
