"""Rows of a scope in the order of document numbers, as files of neighbouring numbers.

What a part of the documents needs lies in one or two of them. The process that runs a stage holds one file's rows at a
time: a range (`lineage.tables.shuffle.range_count`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.text.arrays import load, save
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.ranges import sorted_by
from lineage.tables.shuffle import Part, Shards, Shuffle, TableEngine, range_count, tasks_of


@dataclass(frozen=True)
class Numbered:
    """Flat files; file `i` of `count` has the rows of the `i`-th run of the numbers below `below`, in ascending order."""

    paths: tuple[Path, ...]
    below: int
    rows: int

    def between(self, start: int, stop: int) -> np.ndarray:
        """Return int64 [rows, columns] of the numbers `start <= n < stop`, which is the first column.

        `start` may be `below`: an empty part at the end of a scope begins there.
        """
        numbers = (min(number, max(0, self.below - 1)) for number in (start, max(start, stop - 1)))
        first, last = (number * len(self.paths) // max(1, self.below) for number in numbers)
        slices = []
        for path in self.paths[first : last + 1]:
            rows = load(path)
            # Not np.searchsorted, which copies the column: this touches a few pages of a mapped file.
            low, high = (bisect_left(range(len(rows)), number, key=lambda row: rows[row, 0]) for number in (start, stop))
            slices.append(rows[low:high])
        return np.concatenate(slices)


def numbered(
    out: Shards, engine: TableEngine, parts: Sequence[Part], columns: Sequence[str], below: int, name: str
) -> Numbered:
    """Bring the rows of some parts into the order of the first of these columns, a document number below `below`.

    Columns are int64, or uint64, which are kept bit by bit.

    Rows of one number keep their order. Files are `<name>-*.npy`. A single small part needs no shuffle.
    """
    count = min(below, range_count(sum(part.bytes for part in parts)))
    if count == len(parts) == 1:
        rows = _in_order(_chosen(columns, engine.table(out, parts[0])))
        return Numbered((_flat_file(out, name, 0, rows),), below, rows.num_rows)
    tasks = [(tuple(columns), *task) for task in tasks_of(parts)]
    sorted_parts = engine.shuffle(out, Shuffle(f"{name}-by-number", _chosen, tasks, columns[0], _in_order, count, below=below))
    paths = tuple(_flat_file(out, name, i, engine.table(out, part)) for i, part in enumerate(sorted_parts))
    return Numbered(paths, below, sum(part.rows for part in sorted_parts))


def _flat_file(out: Shards, name: str, index: int, rows: pa.Table) -> Path:
    """Write rows as int64 [rows, columns], for shards that run elsewhere than the engine's tasks."""
    path = out.folder / SCRATCH_FOLDER / f"{name}-{index:06d}.npy"
    save(path, np.stack([column.to_numpy().view(np.int64) for column in rows.columns], axis=1))
    return path


def _chosen(columns: Sequence[str], *tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables).select(list(columns))


def _in_order(rows: pa.Table) -> pa.Table:
    return sorted_by(rows, rows.column_names[0])
