"""WARC and WET: the main text of every page, every other record counted, no cut archive read as a whole one."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from datakit.readers import read_file
from datakit.record import Record, Unreadable

PAGE = (
    "<html><head><title>t</title></head><body><nav>menu entries</nav><article><h1>Title</h1><p>{}</p></article></body></html>"
)
SENTENCE = "A paragraph of running text about café terraces, long enough to be the content of its page."


def record(uri: str, block: bytes, kind: str = "response") -> bytes:
    content_type = {"response": "application/http; msgtype=response", "conversion": "text/plain"}.get(
        kind, "application/warc-fields"
    )
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Record-ID: <urn:uuid:{uri}>\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def response(body: bytes, content_type: str = "text/html; charset=utf-8", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}\r\n".encode() + body


def page(text: str = SENTENCE, encoding: str = "utf-8") -> bytes:
    return PAGE.format(text).encode(encoding)


RECORDS = (
    record("u:info", b"software: test\r\n", "warcinfo"),
    record("u:utf8", response(page())),
    record("u:latin1", response(page(encoding="latin-1"), "text/html; charset=iso-8859-1")),
    record("u:undeclared", response(page(encoding="latin-1"), "text/html")),
    record("u:gzipped", response(gzip.compress(page()), more="Content-Encoding: gzip\r\n")),
    record("u:gone", response(page(), status="404 Not Found")),
    record("u:pdf", response(b"%PDF-1.7", "application/pdf")),
    record("u:request", b"GET / HTTP/1.1\r\n\r\n", "request"),
    record("u:seen", b"HTTP/1.1 304 Not Modified\r\n\r\n", "revisit"),
    record("u:about", b"fetchTimeMs: 12\r\n", "metadata"),
    record("u:file", page(), "resource"),
    record("u:other", b"of no type that the standard has", "brand-new"),
    record("u:wet", SENTENCE.encode(), "conversion"),
    record("u:broken", b"\xff\xfe broken", "conversion"),
)
TEXT = f"Title\n\n{SENTENCE}"
EXPECTED = [
    Unreadable("u:info", "warc_warcinfo"),
    *(Record(uri, TEXT) for uri in ("u:utf8", "u:latin1", "u:undeclared", "u:gzipped")),
    Unreadable("u:gone", "http_error"),
    Unreadable("u:pdf", "not_html"),
    Unreadable("u:request", "warc_request"),
    Unreadable("u:seen", "warc_revisit"),
    Unreadable("u:about", "warc_metadata"),
    Unreadable("u:file", "warc_resource"),
    Unreadable("u:other", "warc_unknown"),
    Record("u:wet", SENTENCE),
    Unreadable("u:broken", "invalid_utf8"),
]


def archive(kind: str, records: tuple[bytes, ...] = RECORDS) -> bytes:
    """Compressed record by record, as the standard asks, or not at all."""
    compress = {"plain": bytes, "gzip": gzip.compress, "zstd": lambda b: pa.compress(b, codec="zstd", asbytes=True)}[kind]
    return b"".join(compress(record) for record in records)


def read(path: Path, content: bytes) -> list[Record | Unreadable]:
    path.write_bytes(content)
    return list(read_file("warc", "f", path))


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_pages_become_their_main_text(kind: str, tmp_path: Path) -> None:
    assert read(tmp_path / "f", archive(kind)) == EXPECTED


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_an_archive_cut_inside_a_record_is_never_read_as_whole(kind: str, tmp_path: Path) -> None:
    """FastWARC alone ends quietly there. Between two records, or in the empty lines after one, nothing of a page is missing."""
    few = RECORDS[:3]
    whole = archive(kind, few)
    ends = [len(archive(kind, few[:count])) for count in range(1, len(few) + 1)]
    harmless = {end - missing for end in ends for missing in range(5 if kind == "plain" else 1)}
    for cut in set(range(1, len(whole))) - harmless:
        with pytest.raises(ValueError, match="f: not a whole WARC file"):
            read(tmp_path / "f", whole[:cut])


@pytest.mark.parametrize("content", [b"", b"not an archive\n" * 50])
def test_what_is_no_archive_stops_with_its_name(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="f: not a whole WARC file"):
        read(tmp_path / "f", content)
