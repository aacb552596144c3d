"""WARC and WET archives of crawls: pages become their main text.

FastWARC reads the records (gzip, zstd or plain) and Resiliparse extracts the main content, as DCLM did
(arXiv:2406.11794). Every record that is not a page is counted with its reason (`warc_request`, `not_html`); datatrove's
reader, which does the same job, skips them silently.
"""

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text

from datakit.readers.http_body import BodyError, page_of
from datakit.readers.lines import decompressed
from datakit.readers.page_encoding import page_text
from datakit.sources.record import Record, Unreadable, is_damage

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PAGES = (WarcRecordType.response, WarcRecordType.conversion)
OTHERS = frozenset({"warcinfo", "request", "metadata", "revisit", "resource", "continuation"})
"""The other record types of the standard (ISO 28500): each is its own drop reason; any further type is `warc_unknown`."""

MAX_DEPTH = 4_000
"""Deepest nesting of elements. Browsers stop at 512. Ten thousand levels take resiliparse 4 s, a hundred thousand 400 s
(2026-11-22).
"""
BOX = re.compile(r"<(/?)(?:article|blockquote|center|dl|div|fieldset|form|main|ol|section|span|table|ul)\b", re.IGNORECASE)
"""Elements whose end tag is never left out."""
ENVELOPE = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n"


class _Counted:
    """A stream that knows its position: FastWARC 2.0 asks for it, and a decompressing Arrow stream does not know it."""

    def __init__(self, stream: pa.NativeFile | gzip.GzipFile) -> None:
        self.stream, self.at = stream, 0

    def read(self, size: int = -1) -> bytes:
        piece = self.stream.read(None if size < 0 else size)
        self.at += len(piece)
        return piece

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        raise io.UnsupportedOperation(f"seek to {offset} ({whence}) in a stream that is read once")

    def close(self) -> None:
        self.stream.close()


def read_warc(name: str, path: Path) -> Iterator[Record | Unreadable]:
    """Yield the main text of every page, and every other record by its type. Raises: ValueError for a cut or damaged
    archive.

    FastWARC 2.0 stops silently where an archive is cut, so lengths are checked here, and `decompressed` reads for it.
    """
    number = 0
    try:
        with decompressed(path) as stream:
            for record in ArchiveIterator(_Counted(stream), record_types=WarcRecordType.any_type, parse_http=False):
                number += 1
                block = record.reader.read()
                declared = record.headers.get("Content-Length")
                if declared != str(len(block)):
                    raise OSError(f"record {number} has {len(block)} bytes and says {declared}")
                place = record.headers.get("WARC-Target-URI") or record.record_id or f"{name}:{number}"
                if record.record_type in PAGES:
                    yield _page(place, record, block)
                else:
                    kind = (record.headers.get("WARC-Type") or "").lower()
                    yield Unreadable(place, f"warc_{kind if kind in OTHERS else 'unknown'}")
        if not number:
            raise OSError("it holds no record")
    except OSError as error:
        if not is_damage(error):
            raise
        raise ValueError(f"{name}: not a whole WARC file, after {number} records ({error}); fetch or restore it") from error


def _page(place: str, record: WarcRecord, block: bytes) -> Record | Unreadable:
    if record.record_type == WarcRecordType.conversion:  # WET is text already, by the crawl's own extractor.
        try:
            return Record(place, block.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return Unreadable(place, "invalid_utf8")
    head = _head(block)
    if head.status not in (None, 200):
        return Unreadable(place, "http_error")
    kind = record.headers.get("WARC-Identified-Payload-Type") or head.kind
    if kind not in HTML_TYPES:
        return Unreadable(place, "not_html")
    if record.headers.get("WARC-Truncated"):
        return Unreadable(place, "truncated_body")
    try:
        body = page_of(head.body, head.headers)
    except BodyError as fault:
        return Unreadable(place, str(fault))
    page = page_text(body, head.charset)
    if page is None:
        return Unreadable(place, "invalid_utf8")
    if _is_too_deep(page):
        return Unreadable(place, "too_deep")
    return Record(place, extract_plain_text(page, main_content=True))


def _is_too_deep(page: str) -> bool:
    """Whether elements are nested so deep that the extractor, which takes quadratic time, would hold up the whole
    archive.
    """
    if page.count("<") <= MAX_DEPTH:
        return False
    steps = (-1 if end else 1 for end in BOX.findall(page))
    return max(accumulate(steps), default=0) > MAX_DEPTH


@dataclass(frozen=True)
class _Head:
    """What a server said: status, media type and character set if given, its headers, and the body."""

    status: int | None
    kind: str | None
    charset: str | None
    headers: tuple[tuple[str, str], ...]
    body: bytes


def _head(block: bytes) -> _Head:
    """Parse one response as an archive of its own, so that an odd response cannot disturb the archive that is being
    read.
    """
    record = next(ArchiveIterator(io.BytesIO(ENVELOPE % len(block) + block), parse_http=False))
    record.parse_http(auto_decode="none")
    header_fields = record.http_headers
    status, headers = (None, ()) if header_fields is None else (header_fields.status_code, tuple(header_fields.items()))
    return _Head(status, record.http_content_type, record.http_charset, headers, record.reader.read())
