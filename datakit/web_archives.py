"""WARC and WET archives, as crawls publish them: pages become their main text.

FastWARC reads the records (gzip, zstd or plain) and Resiliparse takes the main content, as DCLM did (arXiv:2406.11794). Every
record that is no page is counted with its reason (`warc_request`, `not_html`); datatrove's reader, which does the same job,
passes over them in silence.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import pyarrow as pa
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text

from datakit.page_encoding import page_text
from datakit.record import Record, Unreadable, is_damage
from datakit.record_files import decompressed

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PAGES = (WarcRecordType.response, WarcRecordType.conversion)
OTHERS = frozenset({"warcinfo", "request", "metadata", "revisit", "resource", "continuation"})
"""The other types that the standard has (ISO 28500): each is a reason of its own, what is none of them is `warc_unknown`."""

MAX_DEPTH = 4_000
"""Browsers stop at 512. Ten thousand boxes in each other take resiliparse 4 s, a hundred thousand 400 (2026-11-22)."""
BOX = re.compile(r"<(/?)(?:article|blockquote|center|dl|div|fieldset|form|main|ol|section|span|table|ul)\b", re.IGNORECASE)
"""Elements whose end is never left out."""
END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
ENCODINGS = re.compile(rb"\r?\n(?:content|transfer)-encoding:[^\r\n]*", re.IGNORECASE)
ENVELOPE = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n"


class _Counted:
    """A stream that knows where it is: FastWARC 2.0 asks, and a decompressing Arrow stream cannot say."""

    def __init__(self, stream: pa.NativeFile) -> None:
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
    """Main text of every page; every other record by its type. Raises ValueError for an archive that is cut or damaged.

    FastWARC 2.0 ends quietly where an archive is cut, so lengths are checked here, and Arrow decompresses: it does not.
    """
    number = 0
    try:
        with decompressed(path) as stream:
            for record in ArchiveIterator(_Counted(stream), record_types=WarcRecordType.any_type, parse_http=False):
                number += 1
                block = record.reader.read()
                told = record.headers.get("Content-Length")
                if told != str(len(block)):
                    raise OSError(f"record {number} has {len(block)} bytes and says {told}")
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
    if record.record_type == WarcRecordType.conversion:  # WET: text already, by the crawl's own extractor
        try:
            return Record(place, block.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return Unreadable(place, "invalid_utf8")
    response = _decoded(block)
    if response is None:
        return Unreadable(place, "undecodable_body")
    if response.status not in (None, 200):
        return Unreadable(place, "http_error")
    kind = record.headers.get("WARC-Identified-Payload-Type") or response.kind
    if kind not in HTML_TYPES:
        return Unreadable(place, "not_html")
    page = page_text(response.body, response.charset)
    if page is None:
        return Unreadable(place, "invalid_utf8")
    if _is_too_deep(page):
        return Unreadable(place, "too_deep")
    return Record(place, extract_plain_text(page, main_content=True))


def _is_too_deep(page: str) -> bool:
    """Whether boxes stand in boxes so often that the extractor, whose time is their square, would hold up the whole archive."""
    if page.count("<") <= MAX_DEPTH:
        return False
    steps = (-1 if end else 1 for end in BOX.findall(page))
    return max(accumulate(steps), default=0) > MAX_DEPTH


@dataclass(frozen=True)
class _Response:
    """What a server said: status, media type and character set where it said them, and the body."""

    status: int | None
    kind: str | None
    charset: str | None
    body: bytes


def _decoded(block: bytes) -> _Response | None:
    """A response without the encodings that its headers name; as it is where they lie: crawlers decode and keep the header.

    None where its body is neither. One page that lies must not take the archive with it.
    """
    try:
        return _response(block, "all")
    except OSError:  # of bytes in memory: they are not what the headers say
        head, body = (*END_OF_HEADERS.split(block, maxsplit=1), b"")[:2]
        is_markup = body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
        return _response(ENCODINGS.sub(b"", head) + b"\r\n\r\n" + body, "none") if is_markup else None


def _response(block: bytes, decode: Literal["all", "none"]) -> _Response:
    """Through an archive of its own: FastWARC's iterator goes on from the record that it gave, and a lying one breaks that."""
    archive = ArchiveIterator(io.BytesIO(ENVELOPE % len(block) + block), parse_http=False)
    record = next(archive)
    record.parse_http(auto_decode=decode)
    status = None if record.http_headers is None else record.http_headers.status_code
    return _Response(status, record.http_content_type, record.http_charset, record.reader.read())
