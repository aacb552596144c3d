"""The one operation that moves rows between tasks: read tables, bring equal keys together, reduce each range of keys.

Sorting, grouping, distinct rows and joins are functions of one range (`lineage.tables.ranges`), so an engine implements
only `TableEngine.shuffle`. The functions take and return plain Arrow tables and do not know which engine calls them.
The rows of a range arrive in the order of the tasks. So the result is a function of the inputs: it depends on neither
the engine, nor the number of workers, nor which of them died. Ranges are equal shares of 64-bit keys. Keys that are not
hashes are hashed first (`spread`), or are shared out as numbers below a bound (`below`), so that ranges are in order.

Ranges open tasks times ranges files. Where these are too many, rows move in two levels: tasks split their rows into groups of
neighbouring ranges, and further tasks split the rows that a run of tasks has in a group into its ranges. With as many groups
as each has ranges this opens about `2 * tasks * sqrt(ranges)` files, and every byte moves twice. Rows keep their order in both
levels, so the ranges are those of one level.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import xxhash

RANGE_BYTES = 16 << 20
FEW = 128
"""Beyond 2 GiB ranges and tasks grow instead of their number: tasks times ranges is the number of opened files."""

LARGEST_BYTES = 1 << 30
"""Of a range. Beyond 128 GiB there are more again: reducing one takes up to twelve times its bytes, for samples of containment
of which nine in ten repeat (`benchmarks/reduce_memory.py`)."""

LARGEST_TASK_BYTES = 5 << 29
"""Of the rows of a task, which take up to 2.6 times as much. Beyond 320 GiB there are more again."""

LARGEST_IN_PLACE_BYTES = 1 << 32
"""Of a range that its reduction reads where it lies, and of a task of such rows: they take up to 1.6 and 3 times as much
(`benchmarks/reduce_memory.py`)."""

MOST_OPENS = 1 << 13
"""Files that the ranges of one shuffle open in one level, up to 1.4 GiB. Where they would be more, there are two levels."""

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

    @property
    def edges(self) -> list[int]:
        """First range of each group into which the tasks split their rows, and the number of ranges."""
        groups = group_count(len(self.tasks), self.ranges)
        return [self.ranges * i // groups for i in range(groups + 1)]


@dataclass(frozen=True)
class Moved:
    """What one shuffle moved, in bytes of Arrow buffers."""

    name: str
    shuffled: int
    """Bytes that the tasks handed to the ranges, counted once in two levels, too."""

    written: int
    """Bytes that the ranges gave back."""


class Shards(Protocol):
    """What an engine needs of `lineage.writing.writer.Writer`."""

    folder: Path

    def map_shards(
        self,
        function: Callable[..., Mapping[str, Any]],
        tasks: Mapping[str, tuple[object, ...]],
        workers: int | None = None,
        *,
        in_runs: bool = False,
        lazy: bool = False,
    ) -> Mapping[str, Mapping[str, Any]]:
        """Run shards that survive a kill, and return their statistics by name."""
        ...

    def bring(self, *paths: Path) -> None:
        """Fetch files of lazy maps that other machines have made."""
        ...


class TableEngine(Protocol):
    """Runs shuffles."""

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Return the reduced ranges, in the order of the ranges.

        Raises: IncompleteError or the engine's own error, naming the step, if a task fails for good.
        """
        ...

    def table(self, out: Shards, part: Part) -> pa.Table:
        """Return the rows of one part."""
        ...


def range_count(total_bytes: int, largest: int | None = None) -> int:
    """Return how many ranges keep each one near `RANGE_BYTES`; `FEW` if that is enough, more only for `largest`.

    `largest`: bytes of a range; None is `LARGEST_BYTES`.

    >>> range_count(10), range_count(33 << 20), range_count(100 << 30), range_count(1 << 40)
    (1, 3, 128, 1024)
    """
    largest = LARGEST_BYTES if largest is None else largest
    return max(1, min(FEW, -(-total_bytes // RANGE_BYTES)), min(MOST, -(-total_bytes // largest)))


def task_count(items: int, total_bytes: int, largest: int | None = None) -> int:
    """Return how many tasks read `items` items that give `total_bytes` bytes together (`grouped`).

    `largest`: bytes of a task; None is `LARGEST_TASK_BYTES`.
    """
    return min(items, range_count(total_bytes, LARGEST_TASK_BYTES if largest is None else largest))


def group_count(tasks: int, ranges: int) -> int:
    """Return into how many groups of ranges tasks split their rows: as many as ranges, if one level is enough.

    >>> group_count(90, 90), group_count(400, 1_000)
    (90, 31)
    """
    return ranges if tasks * ranges <= MOST_OPENS else isqrt(ranges)


def opened_files(tasks: int, ranges: int) -> int:
    """Return how many files of rows a shuffle opens. One task with one range writes no rows.

    >>> opened_files(90, 90), opened_files(400, 1_000)
    (8100, 25400)
    """
    groups = group_count(tasks, ranges)
    if groups == ranges:
        return 0 if tasks == ranges == 1 else tasks * ranges
    return tasks * groups + ranges * len(runs_of(range(tasks), groups))


def runs_of[T](items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Cut items into the fewest runs of at most `most` neighbours.

    >>> runs_of([1, 2, 3, 4, 5], 3)
    [[1, 2], [3, 4, 5]]
    """
    return _cut(items, -(-len(items) // most))


def tasks_of(parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """Return tasks that read the parts of an earlier shuffle."""
    return [tuple(group) for group in grouped(parts, sum(part.bytes for part in parts))]


def joined(*tables: pa.Table) -> pa.Table:
    """Return the rows of parts as one table: what a task reads that changes nothing."""
    return pa.concat_tables(tables)


def grouped[T](items: Sequence[T], total_bytes: int, largest: int | None = None) -> list[Sequence[T]]:
    """Cut items that give `total_bytes` bytes together into runs of neighbours: one task for each `RANGE_BYTES`.

    A task costs milliseconds, so small inputs share one.

    >>> grouped([1, 2, 3, 4, 5], 20 << 20), grouped([1, 2], 1)
    ([[1, 2], [3, 4, 5]], [[1, 2]])
    """
    return _cut(items, task_count(len(items), total_bytes, largest))


def _cut[T](items: Sequence[T], count: int) -> list[Sequence[T]]:
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]


def split(step: Shuffle, rows: pa.Table, edges: Sequence[int]) -> list[pa.Table]:
    """Return rows by group of ranges; rows of a range keep their order.

    `edges`: the first range of each group, and the end of the last one. All rows are of these ranges.
    """
    if len(edges) == 2:
        return [rows]
    index = range_of(rows[step.key].to_numpy().view(np.uint64), step.ranges, spread=step.spread, below=step.below)
    order = np.argsort(index, kind="stable")
    bounds = np.searchsorted(index[order], np.asarray(edges))
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
