"""WARC and WET archives, as crawls publish them: pages become their main text.

FastWARC reads the records (gzip, zstd or plain) and Resiliparse takes the main content, as DCLM did (arXiv:2406.11794). Every
record that is no page is counted with its reason (`warc_request`, `not_html`); datatrove's reader, which does the same job,
passes over them in silence.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding

from datakit.record import Record, Unreadable, is_damage
from datakit.record_files import decompressed

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PAGES = (WarcRecordType.response, WarcRecordType.conversion)
OTHERS = frozenset({"warcinfo", "request", "metadata", "revisit", "resource", "continuation"})
"""The other types that the standard has (ISO 28500): each is a reason of its own, what is none of them is `warc_unknown`."""


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
            return Record(place, block.decode("utf-8"))
        except UnicodeDecodeError:
            return Unreadable(place, "invalid_utf8")
    record.set_bytes_content(block)
    record.parse_http(auto_decode="all")
    if record.http_headers is not None and record.http_headers.status_code not in (None, 200):
        return Unreadable(place, "http_error")
    kind = record.headers.get("WARC-Identified-Payload-Type") or record.http_content_type
    if kind not in HTML_TYPES:
        return Unreadable(place, "not_html")
    page = _decoded(record.reader.read(), record.http_charset)
    if page is None:
        return Unreadable(place, "invalid_utf8")
    return Record(place, extract_plain_text(page, main_content=True))


def _decoded(content: bytes, declared: str | None) -> str | None:
    """The page by its declared encoding, else by the one that its bytes show; None when neither reads it."""
    for encoding in (declared, detect_encoding(content, from_html_meta=True)):
        try:
            if encoding:
                return content.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return None
