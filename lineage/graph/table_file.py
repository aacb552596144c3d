"""The file of the lineage tables: columns of integers, compressed.

    head       magic, digest of the schemas
    digest     xxh3_128 of what follows: another byte may decompress to the same or, seldom, to other data
    zlib of    counts: uint32, the rows of each table and a code point that no text has, the separator
               words: uint32, column after column of each table; the number of a string for a text, two words for a number
               strings: UTF-8, with the separator between them

Integers are little-endian. Words are written as byte planes (the lowest bytes of all words, then the next ones): high bytes are
mostly zero, so planes are smaller and are decompressed faster.

Anyone who may write to the bucket may forge the file, so every length and number is checked before it is used. A forged Parquet
footer ends the process (a segmentation fault in pyarrow, 2026-11-25); JSON is as safe and takes ten times as long to read.
"""

import struct
import zlib
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import polars as pl
import xxhash

MAX_RATIO = 256
"""Times by which a whole file may grow when it is decompressed. Ours grow about six times."""
MAX_TEXT = 4_096
"""Bytes of text in all cells for each byte of the file. Ours have about 40."""
DTYPES: Mapping[object, np.dtype] = MappingProxyType(
    {pl.String: np.dtype("<u4"), pl.Int64: np.dtype("<i8"), pl.Float64: np.dtype("<f8")}
)
"""How a column is written."""
_MAGIC = b"marintb2"
_DIGEST_BYTES = 16

type Schemas = Mapping[str, Mapping[str, type[pl.DataType]]]


def packed(tables: Mapping[str, pl.DataFrame]) -> bytes:
    """Return the bytes of a file with these tables. Raises: ValueError for a table with a value that is missing."""
    if gaps := [name for name, table in tables.items() if table.null_count().sum_horizontal().sum()]:
        raise ValueError(f"table {gaps[0]} lacks a value")
    columns = [column for table in tables.values() for column in table.get_columns()]
    texts = pl.concat([pl.Series("", [""]), *(column.alias("") for column in columns if column.dtype == pl.String)])
    strings = texts.unique(maintain_order=True)
    numbers, at, words = texts.cast(pl.Enum(strings)).to_physical().to_numpy(), 1, [np.zeros(0, "<u4")]
    for column in columns:
        is_text = column.dtype == pl.String
        values = numbers[at : at + len(column)] if is_text else column.to_numpy()
        words.append(values.astype(DTYPES[column.dtype]).view("<u4"))
        at += len(column) * is_text
    together = "".join(strings)
    separator = next(code for code in range(0x110000) if chr(code) not in together)
    counts = struct.pack(f"<{len(tables) + 1}I", *(table.height for table in tables.values()), separator)
    planes = np.concatenate(words).view(np.uint8).reshape(-1, 4).T.tobytes()
    body = counts + planes + chr(separator).join(strings).encode()
    compressed = zlib.compress(body, 1)
    return _head({name: table.schema for name, table in tables.items()}) + xxhash.xxh3_128_digest(compressed) + compressed


def unpacked(data: bytes, schemas: Schemas, where: str) -> dict[str, pl.DataFrame]:
    """Return the tables of a file, by name. Raises: ValueError naming `where` for bytes that `packed` does not write."""
    try:
        return _tables(data, schemas)
    except (zlib.error, struct.error, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{where} is no file of lineage tables: {type(error).__name__}: {error}") from error


def _tables(data: bytes, schemas: Schemas) -> dict[str, pl.DataFrame]:
    head = _head(schemas)
    if not data.startswith(head):
        raise ValueError(f"it begins with {data[: len(head)].hex()} in place of {head.hex()}")
    digest, compressed = data[len(head) :][:_DIGEST_BYTES], data[len(head) + _DIGEST_BYTES :]
    if xxhash.xxh3_128_digest(compressed) != digest:
        raise ValueError("its bytes are not those of its digest")
    unpacking = zlib.decompressobj()
    body = unpacking.decompress(compressed, MAX_RATIO * len(data))
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("its compressed bytes end elsewhere, or grow more than a file of tables does")
    counts = struct.Struct(f"<{len(schemas) + 1}I")
    *heights, separator = counts.unpack_from(body)
    sizes = [
        height * DTYPES[kind].itemsize
        for schema, height in zip(schemas.values(), heights, strict=True)
        for kind in schema.values()
    ]
    planes = np.frombuffer(body, np.uint8, sum(sizes), counts.size).reshape(4, -1)
    words = np.empty((planes.shape[1], 4), np.uint8)
    for place in range(4):  # three times as fast as a copy of the transpose
        words[:, place] = planes[place]
    flat, at = words.reshape(-1), 0
    strings = pl.Series(body[counts.size + planes.size :].decode().split(chr(separator)), dtype=pl.String)
    lengths, left = strings.str.len_bytes().to_numpy(), MAX_TEXT * len(data)
    tables = {name: dict[str, pl.Series]() for name in schemas}
    for (table, schema), height in zip(schemas.items(), heights, strict=True):
        for name, kind in schema.items():
            values = flat[at : at + height * DTYPES[kind].itemsize].view(DTYPES[kind])
            at += values.nbytes
            if kind == pl.String:
                left -= int(lengths[values].sum())  # an IndexError for a string that is not there
            tables[table][name] = strings.gather(values) if kind == pl.String else pl.Series(values)
    if left < 0:
        raise ValueError("its cells hold more text than those of tables do")
    return {name: pl.DataFrame(columns) for name, columns in tables.items()}


def _head(schemas: Mapping[str, Mapping[str, object]]) -> bytes:
    names = [f"{table}.{name}: {kind}" for table, schema in schemas.items() for name, kind in schema.items()]
    return _MAGIC + struct.pack("<I", zlib.crc32("\n".join(names).encode()))
