"""Merge sorted tables into one on disk with a few rows of each in memory, however long and however many the tables are.

Rows are compared as tuples of all their columns, in the schema's order. There are no ties, so the result is the same
for any cut of the rows into tables.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.documents.parts import ROW_GROUP_ROWS, writing_part

FAN_IN = 32
"""Tables merged at once. More are merged in groups first."""
BATCH_ROWS = 256
"""Rows of each table that are in memory."""


def merge_tables(paths: Sequence[Path], target: Path, schema: pa.Schema, scratch: Path) -> int:
    """Write the rows of tables, each sorted by all columns, as one such table; return how many. Columns hold no nulls.

    `scratch`: a folder for merged groups, which are removed once they are used.
    """
    level, number = list(paths), 0
    while len(level) > FAN_IN:
        groups = [level[low : low + FAN_IN] for low in range(0, len(level), FAN_IN)]
        level = [scratch / f"merged-{number + at:06d}.parquet" for at in range(len(groups))]
        for group, path in zip(groups, level, strict=True):
            _merge(group, path, schema)
            if number:
                for used in group:
                    used.unlink()
        number += len(groups)
    return _merge(level, target, schema)


def _merge(paths: Sequence[Path], target: Path, schema: pa.Schema) -> int:
    with ExitStack() as stack, writing_part(target, schema) as out:
        files = [stack.enter_context(pq.ParquetFile(path)) for path in paths]
        rows = heapq.merge(*(_rows(file) for file in files))
        while block := list(islice(rows, ROW_GROUP_ROWS)):
            columns = zip(zip(*block, strict=True), schema, strict=True)
            out.write(pa.Table.from_arrays([pa.array(values, field.type) for values, field in columns], schema=schema))
    return out.rows


def _rows(file: pq.ParquetFile) -> Iterator[tuple]:
    for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
