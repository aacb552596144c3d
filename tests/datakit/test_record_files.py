"""Record files: the same records from every container; a bad record is a drop, a damaged file stops the source."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import document_paths
from datakit.readers.read import read_file
from datakit.readers.record_files import read_records, spans
from datakit.sources.raw import RAW
from datakit.sources.record import Record, Unreadable
from datakit.sources.remote import FolderFile, listing_digest
from datakit.sources.source import EndsWith, FolderFiles, OneOf, Records, Source
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build

ROWS = [{"id": "one", "text": "first\u2028still first\r\n"}, {"id": "", "text": None}, {"id": "three", "text": "drei\x85 ü"}]
EXPECTED = [Record("one", "first\u2028still first\r\n"), Record("f:2", None), Record("three", "drei\x85 ü")]
KINDS = ("plain", "gzip", "gzip_members", "zstd", "zstd_frames", "parquet", "arrow_file", "arrow_stream")


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def encoded(kind: str, rows: list[dict[str, Any]]) -> bytes:
    """A file of the kind; members and frames are what parallel writers and `cat` leave."""
    compress = {"gzip": gzip.compress, "zstd": lambda b: pa.compress(b, codec="zstd", asbytes=True)}
    if kind == "plain":
        return json_lines(rows)
    if kind in compress:
        return compress[kind](json_lines(rows))
    if kind in ("gzip_members", "zstd_frames"):
        return b"".join(compress[kind.split("_")[0]](json_lines([row])) for row in rows)
    sink, table = pa.BufferOutputStream(), pa.Table.from_pylist(rows)
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=2)
    else:
        with (pa.ipc.new_file if kind == "arrow_file" else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return sink.getvalue().to_pybytes()


def records_of(kind: str, **settings: Any) -> Records:
    container = "parquet" if kind == "parquet" else "arrow" if kind.startswith("arrow") else "jsonl"
    return Records(container, **settings)


def read(path: Path, format: Records) -> list[Record | Unreadable]:
    return list(read_file(format, "f", path))


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_holds_the_same_records(kind: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(encoded(kind, ROWS))
    assert read(tmp_path / "f", records_of(kind)) == EXPECTED


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1), kind=st.sampled_from(KINDS))
def test_no_text_is_lost_or_changed(texts: list[str], kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("records") / "f"
    path.write_bytes(encoded(kind, [{"text": text, "id": str(number)} for number, text in enumerate(texts)]))
    assert read(path, records_of(kind)) == [Record(str(number), text) for number, text in enumerate(texts)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plain"])
def test_a_cut_file_stops_with_its_name(kind: str, tmp_path: Path) -> None:
    rows = [{"id": str(i), "text": f"{i} " * 50} for i in range(40)]
    (tmp_path / "f").write_bytes(encoded(kind, rows)[:-9])
    with pytest.raises(ValueError, match=r"f: not a whole (jsonl|parquet|arrow) file .* fetch or restore it"):
        read(tmp_path / "f", records_of(kind))


def test_a_bad_line_costs_that_line_only(tmp_path: Path) -> None:
    lines = [b'{"text": "a"}', b"{half", b"", b'{"text": "\xff"}', b"[5]", b'{"text": 7}', b'{"id": 8}', b'{"text": "b"}']
    (tmp_path / "f").write_bytes(b"\n".join(lines))
    assert read(tmp_path / "f", Records("jsonl")) == [
        Record("f:1", "a"),
        Unreadable("f:2", "unparsable"),
        Unreadable("f:4", "invalid_utf8"),
        Unreadable("f:5", "not_text"),
        Unreadable("f:6", "not_text"),
        Record("8", None),
        Record("f:8", "b"),
    ]


@pytest.mark.parametrize("kind", ["plain", "parquet", "arrow_file"])
def test_a_misspelt_field_stops_with_the_fields_there_are(kind: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(encoded(kind, ROWS))
    with pytest.raises(ValueError, match="f: no record has the field 'content'; the records have: id, text"):
        read(tmp_path / "f", records_of(kind, text="content"))


SELECTED: tuple[tuple[OneOf | EndsWith, Mapping[str, Any], bool], ...] = (
    (OneOf("language", ("English",)), {"language": "English"}, True),
    (OneOf("language", ("English",)), {"language": "French"}, False),
    (OneOf("language", ("English",)), {}, False),
    (OneOf("metadata.extension", ("py",)), {"metadata": {"extension": ["py"]}}, True),
    (OneOf("metadata.extension", ("py",)), {"metadata": {"extension": ["c"]}}, False),
    (OneOf("metadata.extension", ("py",)), {"metadata": '{"extension": "py"}'}, True),
    (OneOf("metadata.extension", ("py",)), {"metadata": "not json"}, False),
    (EndsWith("path", (".py", ".pyi")), {"path": "a/b.pyi"}, True),
    (EndsWith("path", (".py", ".pyi")), {"path": None}, False),
)


@pytest.mark.parametrize(("rule", "row", "kept"), SELECTED)
def test_records_are_selected_by_their_fields(
    rule: OneOf | EndsWith, row: Mapping[str, Any], kept: bool, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(json_lines([{"id": "1", "text": "a", **row}]))
    expected = Record("1", "a") if kept else Unreadable("1", "not_selected")
    assert read(tmp_path / "f", Records("jsonl", only=(rule,))) == [expected]


def test_columns_that_nobody_names_are_not_needed_to_read_a_nested_field(tmp_path: Path) -> None:
    rows = [{"meta": {"text": "inner", "id": "x"}, "text": "outer", "big": "y" * 1000}]
    (tmp_path / "f").write_bytes(encoded("parquet", rows))
    assert read(tmp_path / "f", Records("parquet", text="meta.text", id="meta.id")) == [Record("x", "inner")]


def test_documents_come_out_of_a_folder_with_every_drop_counted(tmp_path: Path) -> None:
    files = tmp_path / "texts"
    files.mkdir()
    rows = [{"id": "1", "text": "a", "language": "English"}, {"id": "2", "text": "b", "language": "German"}]
    content = encoded("zstd", rows) + encoded("zstd", [{"id": "3", "text": 5, "language": "English"}])
    (files / "a.jsonl.zst").write_bytes(content)
    format = Records("jsonl", only=(OneOf("language", ("English",)),))
    loader = FolderFiles(
        str(files), ("*",), listing_digest([FolderFile("a.jsonl.zst", len(content), xxhash.xxh3_128_hexdigest(content))])
    )
    store = Store(str(tmp_path / "store"))
    raw = Node(
        ("raw",),
        "s",
        RAW,
        Source(name="s", loader=loader, format=format, domain="prose", licence="MIT", terms="none", mixture_weight=1.0),
    )
    build(store, raw)
    made = build(store, Node(("normalized",), "s", NORMALIZE, NormalizeConfig("s", format, "prose"), {"raw": raw})).artifact
    assert pl.concat(map(pl.read_parquet, document_paths(made)))["text"].to_list() == ["a"]
    assert made.manifest.statistics["drops"] == {"not_selected": 1, "not_text": 1}
    assert made.manifest.statistics["rows_in"] == 3


LINE = st.one_of(st.just(b""), st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"\r")), st.just(b'{"text": "a"}'))


@given(st.lists(LINE, min_size=1, max_size=12), st.booleans(), st.integers(1, 80))
def test_pieces_of_a_file_of_lines_are_its_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], is_ended: bool, target: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b'{"text": "first"}\n' + b"\n".join(lines) + (b"\n" if is_ended else b""))
    whole = list(read_records(Records("jsonl"), "a", path))
    pieces = spans(Records("jsonl"), path, target)
    assert len(pieces) == -(-path.stat().st_size // target)
    assert [record for span in pieces for record in read_records(Records("jsonl"), "a", path, span)] == whole


@pytest.mark.parametrize("target", [1, 200, 10_000])
def test_pieces_of_a_parquet_file_are_its_rows(tmp_path: Path, target: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(50)]}), path, row_group_size=7)
    whole = list(read_records(Records("parquet", id=None), "a", path))
    pieces = spans(Records("parquet"), path, target)
    assert len(pieces) == {1: 8, 10_000: 1}.get(target, len(pieces)) and [r.source_id for r in whole][-1] == "a:50"
    assert [record for span in pieces for record in read_records(Records("parquet", id=None), "a", path, span)] == whole


@pytest.mark.parametrize(("share", "count"), [(1 / 1.4, 1), (1 / 1.6, 2), (1 / 2.4, 2), (1 / 3.6, 4)])
def test_a_parquet_file_is_cut_into_equal_pieces_of_its_compressed_bytes(tmp_path: Path, share: float, count: int) -> None:
    """Twenty row groups that compress to less than half."""
    path = tmp_path / "a.parquet"
    texts = [np.random.default_rng(i).bytes(5_000).hex() * 2 for i in range(40)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=2, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 400_000
    groups = [span.stop - span.start for span in spans(Records("parquet"), path, int(path.stat().st_size * share)) if span]
    assert len(groups) == count and sum(groups) == 20 and max(groups) - min(groups) <= 1


@pytest.mark.parametrize("first", [0x50, 0x5F])
def test_frames_that_zstd_skips_are_skipped(first: int, tmp_path: Path) -> None:
    """What pzstd writes begins with one: the file was taken for plain lines, and all of it was dropped."""
    frame = bytes([first]) + b"\x2a\x4d\x18\x04\x00\x00\x00\xff\n\n\n"
    (tmp_path / "f").write_bytes(frame + encoded("zstd", ROWS[:1]) + frame + encoded("zstd", ROWS[2:]))
    assert read(tmp_path / "f", Records("jsonl")) == [EXPECTED[0], Record("three", "drei\x85 ü")]


COLUMNS = {
    "nullable": pa.array(["ü", None, "b"]),
    "large_string": pa.array(["ü", None, "b"], pa.large_string()),
    "string_view": pa.array(["ü", None, "b"], pa.string_view()),
    "dictionary": pa.array(["ü", None, "b"]).dictionary_encode(),
    "binary": pa.array(["ü".encode(), None, b"b"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("container", ["parquet", "arrow_file"])
def test_text_is_read_from_columns_of_any_type_that_holds_it(kind: str, container: str, tmp_path: Path) -> None:
    rows = pa.table({"id": ["1", "2", "3"], "text": COLUMNS[kind]})
    with pa.OSFile(str(tmp_path / "f"), "wb") as sink:
        if container == "parquet":
            pq.write_table(rows, sink)
        else:
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
    assert read(tmp_path / "f", records_of(container)) == [Record("1", "ü"), Record("2", None), Record("3", "b")]


def test_a_column_of_bytes_that_are_no_text_is_a_drop_of_each(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [b"a", b"\xff\xfe"]}), tmp_path / "f")
    assert read(tmp_path / "f", Records("parquet", id=None)) == [Record("f:1", "a"), Unreadable("f:2", "invalid_utf8")]


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0)], ids=["nothing", "a gzip of nothing"])
def test_a_file_without_records_has_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    assert read(tmp_path / "f", Records("jsonl")) == []
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "f")
    assert read(tmp_path / "f", Records("parquet")) == []


def test_a_mark_and_carriage_returns_are_no_part_of_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n\r\n')
    assert read(tmp_path / "f", Records("jsonl")) == [Record("f:1", "a"), Record("f:2", "b")]


def test_lines_longer_than_what_is_read_at_once_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = ["a" * 3_000_000, "b", "c" * 1_100_000]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert [record.text for record in read_records(Records("jsonl"), "a", path)] == texts
