"""The file of the lineage tables: it gives back what it was given, and forged bytes are named and never believed."""

import struct
import zlib

import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from lineage.graph.table_file import packed, unpacked

SCHEMAS = {
    "artifacts": {"address": pl.String, "bytes": pl.Int64, "seconds": pl.Float64},
    "edges": {"child": pl.String, "parent": pl.String},
}
HEAD, DIGEST, COUNTS = 12, 16, struct.Struct("<3I")
INTEGERS, FLOATS = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)


@st.composite
def some_tables(draw: st.DrawFn) -> dict[str, pl.DataFrame]:
    def column(kind: type[pl.DataType], rows: int) -> list:
        values = {pl.String: st.text(max_size=6), pl.Int64: INTEGERS, pl.Float64: FLOATS}[kind]
        return draw(st.lists(values, min_size=rows, max_size=rows))

    heights = {name: draw(st.integers(0, 5)) for name in SCHEMAS}
    return {
        name: pl.DataFrame({key: column(kind, heights[name]) for key, kind in schema.items()}, schema=schema)
        for name, schema in SCHEMAS.items()
    }


def forged(body: bytes) -> bytes:
    """A file that holds a body, as our own writer would compress it."""
    head = packed({name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()})[:HEAD]
    return with_digest(head, zlib.compress(body))


def with_digest(head: bytes, compressed: bytes) -> bytes:
    return head + xxhash.xxh3_128_digest(compressed) + compressed


def planes(*words: int) -> bytes:
    return b"".join(bytes(word >> (8 * place) & 255 for word in words) for place in range(4))


def edges(*words: int, rows: int = 1, separator: int = 0, strings: bytes = b"\0a") -> bytes:
    return forged(COUNTS.pack(0, rows, separator) + planes(*words) + strings)


@given(some_tables())
def test_tables_come_back(tables: dict[str, pl.DataFrame]) -> None:
    again = unpacked(packed(tables), SCHEMAS, "it")
    assert list(again) == list(tables)
    for name, table in tables.items():
        assert_frame_equal(again[name], table, check_exact=True)


def test_a_file_by_hand_is_read() -> None:
    assert unpacked(edges(1, 0), SCHEMAS, "it")["edges"].rows() == [("a", "")]


@given(some_tables(), st.data())
def test_a_forged_body_is_named_or_gives_whole_tables(tables: dict[str, pl.DataFrame], data: st.DataObject) -> None:
    """Bytes that are compressed again, with a right checksum: any cut, insertion or change of what is inside."""
    body = zlib.decompress(packed(tables)[HEAD + DIGEST :])
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 8)))
    try:
        read = unpacked(forged(body[:start] + data.draw(st.binary(max_size=8)) + body[end:]), SCHEMAS, "it")
    except ValueError as error:
        assert str(error).startswith("it is no file of lineage tables")
        return
    for name, table in read.items():
        assert dict(table.schema) == SCHEMAS[name]
        assert not table.null_count().sum_horizontal().sum()
        "".join(str(row) for row in table.rows()).encode()


REFUSED = {
    "empty": b"",
    "parquet": b"PAR1" * 9,
    "another version": b"marintb0" + edges(1, 0)[8:],
    "other columns": packed({"artifacts": pl.DataFrame({"address": ["x"]}), "edges": pl.DataFrame({"child": ["x"]})}),
    "cut": edges(1, 0)[:-1],
    "cut in its compressed bytes": with_digest(edges(1, 0)[:HEAD], edges(1, 0)[HEAD + DIGEST : -1]),
    "something behind": with_digest(edges(1, 0)[:HEAD], edges(1, 0)[HEAD + DIGEST :] + b"x"),
    "another digest": edges(1, 0)[:HEAD] + bytes(DIGEST) + edges(1, 0)[HEAD + DIGEST :],
    "no counts": forged(b"\0" * (COUNTS.size - 1)),
    "more rows than words": edges(1, 0, rows=2),
    "so many rows that nothing could hold them": edges(1, 0, rows=2**32 - 1),
    "a string that is not there": edges(1, 2),
    "the largest number of a string": edges(1, 2**32 - 1),
    "a separator beyond Unicode": edges(1, 0, separator=0x110000),
    "half of a surrogate pair as separator, and another one": edges(1, 1, separator=0xD800),
    "no UTF-8": edges(1, 0, strings=b"\0\xff"),
    "half of a surrogate pair": edges(1, 0, strings=b"\0\xed\xa0\x80"),
    "a bomb": forged(bytes(64 << 20)),
    "a bomb of one long text in every cell": edges(*[1] * 20_000, rows=10_000, strings=b"\0" + b"x" * 100_000),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_forged_file_is_named(what: str) -> None:
    with pytest.raises(ValueError, match=r"^somewhere is no file of lineage tables"):
        unpacked(REFUSED[what], SCHEMAS, "somewhere")


def test_a_missing_value_is_not_written() -> None:
    gap = pl.DataFrame({"child": ["x"], "parent": [None]}, schema=SCHEMAS["edges"])
    with pytest.raises(ValueError, match="table edges lacks a value"):
        packed({"edges": gap})
