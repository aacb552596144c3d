"""WARC and WET: the main text of every page, every other record counted, truncated archives refused."""

import gzip
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from datakit.readers import http_body
from datakit.readers.read import read_file
from datakit.sources.record import Record, Unreadable

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


CODECS = {"br": "brotli", "zstd": "zstd"}
LIES = {
    "Content-Encoding: gzip\r\n": page(),
    "Content-Encoding: br\r\n": page(),
    "Transfer-Encoding: chunked\r\n": page(),
    "Content-Encoding: rot13\r\nX-More: 1\r\n": b"\r\n" + page(),
}


@pytest.mark.parametrize("more", LIES)
def test_a_page_whose_headers_lie_is_read_as_it_is_and_so_are_those_after_it(more: str, tmp_path: Path) -> None:
    """Crawlers keep the headers of encodings that they have taken off; one such page ended its archive."""
    records = (record("u:lies", response(LIES[more], more=more)), record("u:next", response(page())))
    assert read(tmp_path / "f", archive("gzip", records)) == [Record("u:lies", TEXT), Record("u:next", TEXT)]


@pytest.mark.parametrize("charset", ["undefined", "utf\0-8", "x-no-such"])
def test_a_character_set_that_is_none_costs_nothing(charset: str, tmp_path: Path) -> None:
    """Scripts send `charset=undefined`, and Python has a codec of that name, which raises what no reader expects."""
    records = (record("u:a", response(page(), f"text/html; charset={charset}")), record("u:next", response(page())))
    assert read(tmp_path / "f", archive("plain", records)) == [Record("u:a", TEXT), Record("u:next", TEXT)]


def test_a_body_that_cannot_be_decoded_is_one_counted_drop(tmp_path: Path) -> None:
    lying = response(b"\x00\x01 no markup", more="Content-Encoding: gzip\r\n")
    records = read(tmp_path / "f", archive("plain", (record("u:lies", lying), record("u:next", response(page())))))
    assert records == [Unreadable("u:lies", "undecodable_body"), Record("u:next", TEXT)]


LONG = PAGE.format(" ".join(f"{SENTENCE} {i * i}." for i in range(200))).encode()
GZIP, CHUNKS = gzip.compress(LONG, mtime=0), b"%x\r\n%b\r\n" % (len(LONG), LONG)
CUT = {
    "gzip": (GZIP[: len(GZIP) // 2], "Content-Encoding: gzip"),
    "gzip without its checksum": (GZIP[:-8], "Content-Encoding: GZIP"),
    "gzip but its last byte": (GZIP[:-1], "Content-Encoding: x-gzip"),
    "a second member": (GZIP + GZIP[:-1], "Content-Encoding: gzip"),
    "deflate": (zlib.compress(LONG)[:-400], "Content-Encoding: deflate"),
    "bare deflate": (zlib.compress(LONG, wbits=-15)[:-400], "Content-Encoding: deflate"),
    "inside a chunk": (CHUNKS[:-400], "Transfer-Encoding: chunked"),
    "between chunks": (CHUNKS, "Transfer-Encoding: chunked"),
    "gzip in chunks": (b"%x\r\n%b\r\n0\r\n" % (400, GZIP[:400]), "Content-Encoding: gzip\r\nTransfer-Encoding: chunked"),
    "a length": (LONG[:-400], f"Content-Length: {len(LONG)}"),
}


@pytest.mark.parametrize("what", CUT)
def test_a_body_that_is_cut_is_a_counted_drop_and_no_shorter_page(what: str, tmp_path: Path) -> None:
    """FastWARC decodes what there is of it, and a site that went away in mid-page would be half a document."""
    body, header = CUT[what]
    records = (record("u:cut", response(body, more=f"{header}\r\n")), record("u:next", response(page())))
    assert read(tmp_path / "f", archive("gzip", records)) == [Unreadable("u:cut", "truncated_body"), Record("u:next", TEXT)]


def test_a_body_that_the_crawler_cut_is_a_counted_drop(tmp_path: Path) -> None:
    whole = record("u:cut", response(LONG[:400]))
    cut = whole.replace(b"WARC-Type:", b"WARC-Truncated: length\r\nWARC-Type:", 1)
    assert read(tmp_path / "f", archive("plain", (cut,))) == [Unreadable("u:cut", "truncated_body")]


WHOLE = {
    "members and zeros": (gzip.compress(page()[:50]) + gzip.compress(page()[50:]) + b"\0" * 9, "Content-Encoding: gzip"),
    "twice": (gzip.compress(gzip.compress(page())), "Content-Encoding: gzip, gzip"),
    "two headers": (gzip.compress(zlib.compress(page())), "Content-Encoding: deflate\r\nContent-Encoding: gzip"),
    "bare deflate": (zlib.compress(page(), wbits=-15), "Content-Encoding: deflate"),
    "x-gzip": (gzip.compress(page()), "Content-Encoding: x-gzip"),
    "zstd": (pa.compress(page(), codec="zstd", asbytes=True), "Content-Encoding: zstd"),
    "brotli": (pa.compress(page(), codec="brotli", asbytes=True), "Content-Encoding: br"),
    "chunks taken off": (gzip.compress(page()), "Content-Encoding: gzip\r\nTransfer-Encoding: chunked"),
    "no last line": (b"%X;x=y\r\n%b\r\n0" % (len(page()), page()), "Transfer-Encoding: chunked"),
    "a shorter length": (page(), "Content-Length: 20"),
    "no length": (page(), "Content-Length: many"),
}


@pytest.mark.parametrize("what", WHOLE)
def test_a_body_that_is_whole_is_read_in_every_coding(what: str, tmp_path: Path) -> None:
    body, header = WHOLE[what]
    assert read(tmp_path / "f", archive("plain", (record("u:a", response(body, more=f"{header}\r\n")),))) == [
        Record("u:a", TEXT)
    ]


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_small_body_that_grows_without_bounds_is_a_counted_drop(
    coding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_body, "MAX_BYTES", 1 << 20)
    zeros = bytes((1 << 20) + 1)
    body = gzip.compress(zeros) if coding == "gzip" else pa.compress(zeros, codec=CODECS[coding], asbytes=True)
    records = (record("u:bomb", response(body, more=f"Content-Encoding: {coding}\r\n")), record("u:next", response(page())))
    assert read(tmp_path / "f", archive("plain", records)) == [Unreadable("u:bomb", "body_too_large"), Record("u:next", TEXT)]


def test_bodies_in_chunks_are_put_together_and_marks_are_no_text(tmp_path: Path) -> None:
    body = gzip.compress(b"\xef\xbb\xbf" + page())
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:40], body[40:], b""))
    headers = "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"
    assert read(tmp_path / "f", archive("plain", (record("u:a", response(chunks, more=headers)),))) == [Record("u:a", TEXT)]
    mark = record("u:b", b"\xef\xbb\xbfwords", "conversion")
    assert read(tmp_path / "f", archive("plain", (mark,))) == [Record("u:b", "words")]


def test_a_page_of_boxes_in_boxes_is_one_counted_drop_and_a_long_one_is_not(tmp_path: Path) -> None:
    """Its extraction takes the square of its depth: a megabyte of it held an archive up for minutes."""
    deep = b"<html><body>" + b"<DIV class=x>" * 5_000 + b"words"
    long = page().replace(b"</p>", b"</p>" + b"<div><span>item</span></div>" * 5_000)
    records = (record("u:deep", response(deep)), record("u:long", response(long)), record("u:next", response(page())))
    pages = read(tmp_path / "f", archive("plain", records))
    assert [pages[0], pages[2]] == [Unreadable("u:deep", "too_deep"), Record("u:next", TEXT)]
    assert isinstance(pages[1], Record)


@pytest.mark.parametrize("content", [b"", b"not an archive\n" * 50])
def test_what_is_no_archive_stops_with_its_name(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="f: not a whole WARC file"):
        read(tmp_path / "f", content)
