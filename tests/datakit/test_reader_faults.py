"""Damaged raw files of every format: a named drop, or a ValueError with the file's name."""

import gzip
import io
import json
import lzma
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bundles import Objects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datakit.readers.read import READERS, read_file
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Format, Records
from lineage.shards.failures import kind_of

ROWS = [{"id": str(i), "text": f"document {i} " * 40} for i in range(300)]
JSONL = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
FORMATS: list[Format | Records] = [*READERS, "warc", "commits", *(Records(kind) for kind in ("jsonl", "parquet", "arrow"))]


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=50, compression="zstd")
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return sink.getvalue()


def warc() -> bytes:
    page = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>" + b"a page of words " * 30 + b"</p></body></html>"
    )
    fields = {"WARC-Type": "response", "Content-Type": "application/http; msgtype=response", "WARC-Target-URI": "http://x/"}
    lines = ["WARC/1.0", *(f"{name}: {value}" for name, value in fields.items()), f"Content-Length: {len(page)}", "", ""]
    head = "\r\n".join(lines).encode()
    return (head + page + b"\r\n\r\n") * 3


def bundle() -> bytes:
    made = Objects()
    first = made.commit(made.tree({"a": b"words\n" * 50}), message=b"first")
    made.commit(made.tree({"a": b"words\n" * 49, "b": b"more\n"}), [first], b"second")
    return made.bundle()


WHOLE: Mapping[str, tuple[Format | Records, bytes]] = {
    "jsonl": (Records("jsonl"), JSONL),
    "jsonl.gz": (Records("jsonl"), gzip.compress(JSONL, mtime=0)),
    "jsonl.zst": (Records("jsonl"), pa.compress(JSONL, "zstd", asbytes=True)),
    "parquet": (Records("parquet"), parquet()),
    "arrow": (Records("arrow"), arrow()),
    "warc": ("warc", warc()),
    "warc.gz": ("warc", gzip.compress(warc(), mtime=0)),
    "bundle": ("commits", bundle()),
    "xz": ("xz_text", lzma.compress(JSONL)),
    "wiki_json": ("wiki_json", json.dumps({"T": {"title": "T", "extract": "words " * 50}}).encode()),
    "html": ("html", b"<html><body><p>" + b"words " * 50 + b"</p></body></html>"),
    "docstrings": ("docstrings", b'"""' + b"words " * 100 + b'"""\n'),
    "topics_python": ("topics_python", b"topics = {'a': 'words words'}\n"),
    "bible_python": ("bible_python", b"Bible('x', 'words\\nwords')\n"),
    "metadata": ("metadata", b"Name: x\nVersion: 1\n\nwords words\n"),
}


def read(
    format: Format | Records, path: Path, content: bytes, name: str = "the-file"
) -> list[Record | Unreadable] | ValueError:
    """What a reader makes of a file; anything but a ValueError that names the file is raised."""
    path.write_bytes(content)
    try:
        return list(read_file(format, name, path))
    except ValueError as error:
        assert "the-file" in str(error), f"it must name the file: {error!r}"
        return error


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "file"


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_whole_is_read(name: str, path: Path) -> None:
    records = read(WHOLE[name][0], path, WHOLE[name][1])
    assert isinstance(records, list) and records and all(isinstance(record, Record) for record in records)


COMPRESSED = ("jsonl.gz", "jsonl.zst", "parquet", "arrow", "warc.gz", "bundle", "xz")


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_stops_with_its_name(name: str, share: float, path: Path) -> None:
    """Never fewer records in silence: what a cut leaves of a container is not a file."""
    format, content = WHOLE[name]
    outcome = read(format, path, content[: int(len(content) * share)], f"the-file.{name}")
    assert isinstance(outcome, ValueError), f"{len(outcome)} records were read"


@pytest.mark.parametrize("name", ["jsonl.gz", "warc.gz", "xz"])
@pytest.mark.parametrize("zeros", [4, 512, 2 << 20])
def test_zeros_behind_a_compressed_file_are_no_damage(name: str, zeros: int, path: Path) -> None:
    """Tapes and disks pad with them; gzip(1) and the xz format allow it, also in front of a next member."""
    format, content = WHOLE[name]
    once, twice = (read(format, path, content * times, f"the-file.{name}") for times in (1, 2))
    assert isinstance(once, list) and isinstance(twice, list) and len(twice) == 2 * len(once)
    assert read(format, path, content * 2 + bytes(zeros), f"the-file.{name}") == twice
    assert read(format, path, content + bytes(zeros) + content, f"the-file.{name}") == twice


@pytest.mark.parametrize("name", ["jsonl.gz", "warc.gz", "xz"])
@pytest.mark.parametrize(
    "tail",
    [b"junk", b"\0" * 8 + b"junk", b"\0" * 600 + b"\x1f\x8b", b"\x1f"],
    ids=["words", "zeros, words", "zeros, a mark", "a byte"],
)
def test_what_else_stands_behind_a_compressed_file_is_damage(name: str, tail: bytes, path: Path) -> None:
    """It may be what is left of a member: passed over, its records would be gone in silence."""
    format, content = WHOLE[name]
    assert isinstance(read(format, path, content + tail, f"the-file.{name}"), ValueError)
    cut_member = content + bytes(512) + content[: len(content) // 2]
    assert isinstance(read(format, path, cut_member, f"the-file.{name}"), ValueError)


@contextmanager
def no_more_open_files() -> Iterator[None]:
    """This process holds as many files as it may."""
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        with suppress(OSError):  # no file more: that is what is wanted
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("name", ["jsonl", "jsonl.gz", "parquet", "arrow", "warc", "warc.gz", "bundle"])
def test_what_the_machine_cannot_do_now_is_no_damage(name: str, path: Path) -> None:
    """A whole file that could not be opened for want of descriptors: it is read when the shard is tried again."""
    format, content = WHOLE[name]
    records = read(format, path, content)
    with no_more_open_files(), pytest.raises(OSError, match="Too many open files") as raised:
        list(read_file(format, "the-file", path))
    assert kind_of(raised.value) == "transient"
    assert list(read_file(format, "the-file", path)) == records


@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("footer", lambda b: b[:-500] + bytes(300) + b[-200:]),
        ("magic", lambda b: b[:-4] + b"NOPE"),
        ("page", lambda b: b[:200] + bytes(400) + b[600:]),
        ("footer length", lambda b: b[:-8] + b"\xff\xff\xff\x7f" + b[-4:]),
    ],
)
def test_corrupt_parquet_stops_with_its_name(what: str, damage: Callable[[bytes], bytes], path: Path) -> None:
    assert isinstance(read(Records("parquet"), path, damage(parquet())), ValueError), what


@pytest.mark.parametrize("name", ["jsonl.gz", "jsonl.zst", "warc.gz", "bundle", "xz"])
def test_flipped_bytes_in_a_compressed_file_stop_with_its_name(name: str, path: Path) -> None:
    format, content = WHOLE[name]
    middle = len(content) // 2
    flipped = content[:middle] + bytes(byte ^ 0xFF for byte in content[middle : middle + 8]) + content[middle + 8 :]
    assert isinstance(read(format, path, flipped), ValueError)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_row_that_is_not_utf8_is_reported(kind: Literal["parquet", "arrow"], path: Path) -> None:
    """Neither format makes sure of it. Of Parquet it is one counted drop; an Arrow file is not trusted further."""
    texts = pa.array([b"good " * 20, b"\xff\xfe bad", b"good again " * 20]).view(pa.string())
    table = pa.table({"id": ["1", "2", "3"], "text": texts})
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    outcome = read(Records(kind), path, sink.getvalue())
    if kind == "arrow":
        assert isinstance(outcome, ValueError) and "UTF8" in str(outcome)
    else:
        assert isinstance(outcome, list) and outcome[1] == Unreadable("the-file:2", "invalid_utf8") and len(outcome) == 3


def test_page_checksums_are_held_where_a_file_has_them(path: Path) -> None:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_page_checksum=True)
    content = sink.getvalue()
    assert isinstance(read(Records("parquet"), path, content), list)
    assert isinstance(read(Records("parquet"), path, content.replace(b"document 7 ", b"document X ", 1)), ValueError)


@pytest.mark.parametrize(
    ("format", "content", "reasons"),
    [
        (Records("jsonl"), b'{"text": ' + b"9" * 5000 + b'}\n{"text": "good"}\n', {"unparsable"}),
        (Records("jsonl"), b"[" * 100_000 + b'\n{"text": "good"}\n', {"unparsable"}),
        (Records("jsonl", text="metadata.text"), b'{"metadata": "' + b"[" * 90_000 + b'"}\n', set()),
        ("bible_python", b"Bible(1, 2)\nBible(x, y)\nBible('x', 'words')\n", {"not_text"}),
        ("topics_python", b"topics = {[]: 1}\nmore = {f(): 1}\nlast = {1: 'a', 'b': 2}\n", {"unparsable", "not_text"}),
        ("xz_text", lzma.compress(b"[" * 100_000 + b'\n{"text": "good"}\n'), {"unparsable"}),
        ("python", b"\x00\xff", {"invalid_utf8"}),
        ("docstrings", b"(" * 5000, {"unparsable"}),
        ("html", b"<div>" * 20_000 + b"deep", set()),
    ],
)
def test_what_broke_a_reader_once_or_might(format: Format | Records, content: bytes, reasons: set[str], path: Path) -> None:
    """Numbers of too many digits, deep nesting, literals of another kind: drops of one record, beside the good ones."""
    records = read(format, path, content)
    assert isinstance(records, list)
    assert {record.reason for record in records if isinstance(record, Unreadable)} == reasons


def test_deep_nesting_in_a_file_that_is_one_object_stops_with_its_name(path: Path) -> None:
    assert isinstance(read("wiki_json", path, b"[" * 100_000), ValueError)


def test_lists_in_lists_of_yaml_stop_with_the_name_of_their_file(path: Path) -> None:
    """They ended the process that read them."""
    outcome = read("chatterbot_yaml", path, b"conversations: " + b"[" * 100_000 + b"]" * 100_000)
    assert isinstance(outcome, ValueError) and "more than 100 lists in each other" in str(outcome)


def test_articles_of_one_title_are_all_read(path: Path) -> None:
    """A dict holds the last of them."""
    records = read("wiki_json", path, b'{"T": {"extract": "one"}, "T": {"extract": "two"}}')
    assert records == [Record("T", "T\n\none"), Record("T", "T\n\ntwo")]


def test_invalid_utf8_is_a_drop_of_one_record(path: Path) -> None:
    lines = JSONL.splitlines(keepends=True)
    lines[7] = lines[7].replace(b"document", b"docum\xff\xfent")
    records = read(Records("jsonl"), path, b"".join(lines))
    assert isinstance(records, list)
    assert [record for record in records if isinstance(record, Unreadable)] == [Unreadable("the-file:8", "invalid_utf8")]
    assert len(records) == len(ROWS)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_bring_a_reader_down(format: Format | Records, content: bytes, path: Path) -> None:
    read(format, path, content)


@pytest.mark.parametrize("name", WHOLE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_edit_of_a_whole_file_brings_a_reader_down(name: str, data: st.DataObject, path: Path) -> None:
    """Nearer to the truth than arbitrary bytes: the magic numbers stand, and something behind them does not."""
    format, content = WHOLE[name]
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start, min(len(content), start + 50)))
    read(format, path, content[:start] + data.draw(st.binary(max_size=60)) + content[end:])
