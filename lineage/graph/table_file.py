"""The file of the lineage tables: gzip of lines of JSON, each with some rows of one table.

    {"table": "edges", "columns": {"child": [...], "input": [...], ...}}

Anyone who may write to the bucket may forge it, and a forged Parquet footer ends the process (a segmentation fault in pyarrow,
2026-11-25). Python's own gzip and JSON refuse what they cannot read.
"""

import gzip
import io
import json
import zlib
from collections.abc import Mapping

import polars as pl

from lineage.strangers import json_object

LINE_ROWS = 4_096
MAX_LINE = 64 << 20
"""Bytes of a line after decompression. Ours take about 2 MiB."""
MAX_RATIO = 256
"""Times by which a whole file may grow when it is decompressed. Ours grow about 20 times."""


def packed(tables: Mapping[str, pl.DataFrame]) -> bytes:
    """Return the bytes of a file with these tables."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1, mtime=0) as file:
        for name, table in tables.items():
            for rows in table.iter_slices(LINE_ROWS):
                file.write(json.dumps({"table": name, "columns": rows.to_dict(as_series=False)}).encode() + b"\n")
    return sink.getvalue()


def unpacked(data: bytes, schemas: Mapping[str, Mapping[str, type[pl.DataType]]], where: str) -> dict[str, pl.DataFrame]:
    """Return the tables of a file, by name. Raises: ValueError naming `where` for bytes that `packed` does not write."""
    parts = {name: [pl.DataFrame(schema=schema)] for name, schema in schemas.items()}
    left = MAX_RATIO * len(data)
    try:
        if not data:
            raise ValueError("it is empty")
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while line := file.readline(MAX_LINE):
                left -= len(line)
                if left < 0 or not line.endswith(b"\n"):
                    raise ValueError("it grows more than a file of tables does")
                record = json_object(line.decode(), where)
                name = record["table"]
                parts[name].append(_rows(record["columns"], schemas[name]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{where} is no file of lineage tables: {type(error).__name__}: {error}") from error
    return {name: pl.concat(each) for name, each in parts.items()}


def _rows(columns: Mapping[str, list], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Return rows of a schema. Raises: ValueError, TypeError or a PolarsError for other columns, lengths, types or nulls."""
    if strange := [name for name in schema if not isinstance(columns[name], list)]:
        raise TypeError(f"column {strange[0]} is no list")
    rows = pl.DataFrame({name: pl.Series(name, columns[name], kind, strict=True) for name, kind in schema.items()})
    if rows.null_count().sum_horizontal().sum():
        raise ValueError("a value is missing")
    return rows
