"""The data engine's readers: one attempt gives the bytes to one format, chosen by the bytes themselves."""

import gzip
import hashlib
import io
import json
import lzma
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.readers.read import READERS, read_file
from datakit.sources.source import Format, Records
from fuzz.run import Target

RECORDS = [
    Records("jsonl", keep=("author",)),
    Records("jsonl", text="messages", form="messages", tools="tools"),
    Records("parquet"),
    Records("arrow"),
]
FORMATS: list[Format | Records] = [*READERS, "warc", "commits", *RECORDS]


def target() -> Target:
    return Target("readers", _seeds(), _attempt)


def _seeds() -> list[bytes]:
    """A byte in front chooses the format."""
    rows = [{"id": str(n), "text": f"text {n} é", "author": "x"} for n in range(4)]
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], "tools": [{"name": "t"}]}
    lines = b"\n".join(json.dumps(row).encode() for row in rows)
    parquet, arrow = io.BytesIO(), io.BytesIO()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, parquet)
    with pa.ipc.new_file(arrow, table.schema) as out:
        out.write_table(table)
    page = b"<html><head><meta charset=utf-8><title>t</title></head><body><p>Hello <b>you</b></p><table><tr><td>1</html>"
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(page, mtime=0)
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.b/\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
    head += b"WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: application/http; msgtype=response\r\n"
    warc = head + f"Content-Length: {len(http)}\r\n\r\n".encode() + http + b"\r\n\r\n"
    contents: dict[object, bytes] = {
        "text": b"plain text", "markdown": b"# Title\n\ntext", "python": b"x = 1\n", "html": page,
        "wiki_json": json.dumps([{"title": "t", "text": "a", "url": "u"}]).encode(),
        "bible_python": b"verses = {'a': [('1', 'In the beginning')]}\n",
        "docstrings": b'def f():\n    """' + b"doc " * 200 + b'"""\n',
        "topics_python": b"topics = {'a': 'text'}\n", "metadata": b"Name: x\nVersion: 1\n\nbody text\n",
        "xz_text": lzma.compress(lines), "chatterbot_yaml": b"categories:\n- a\nconversations:\n- - hi\n  - ho\n", "warc": warc,
        "commits": _bundle(),
    }  # fmt: skip
    of_records = [lines, json.dumps(chat).encode(), parquet.getvalue(), arrow.getvalue()]
    seeds = [bytes([FORMATS.index(name)]) + text for name, text in contents.items()]  # type: ignore[arg-type]
    seeds += [bytes([len(FORMATS) - len(RECORDS) + n]) + text for n, text in enumerate(of_records)]
    packed = [(len(FORMATS) - len(RECORDS), lines), (FORMATS.index("warc"), warc)]
    return seeds + [bytes([number]) + gzip.compress(text, mtime=0) for number, text in packed]


def _bundle() -> bytes:
    """A commit without files; its checksum is the first thing that a reader looks at."""
    tree = hashlib.sha1(b"tree 0\0", usedforsecurity=False).hexdigest()
    commit = f"tree {tree}\nauthor a <> 0 +0\n\nb".encode()
    objects = (2 << 4, b""), (0x80 | 1 << 4 | len(commit) & 15, commit)
    packed = [bytes([head, len(text) >> 4] if head & 0x80 else [head]) + zlib.compress(text) for head, text in objects]
    pack = b"PACK\0\0\0\2\0\0\0\2" + b"".join(packed)
    return b"# v2 git bundle\n\n" + pack + hashlib.sha1(pack, usedforsecurity=False).digest()


def _attempt(data: bytes, folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(data[1:])
    for _ in read_file(FORMATS[(data[:1] or b"\0")[0] % len(FORMATS)], "file", path):
        pass
