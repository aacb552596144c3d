"""The body of an HTTP response as the page that it carries: decoded by its headers, and refused if it was cut.

FastWARC's own decoder returns the beginning of a cut gzip or chunked body as if it were whole.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa

MAX_BYTES = 64 << 20
"""Largest decoded body. Common Crawl keeps 5 MiB of a page; a gzip of 64 KiB may decode to as much as this."""

MARKS = b"\xef\xbb\xbf \t\r\n"
CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]*)?(?:\r?\n|$)")


class BodyError(ValueError):
    """Why a body is not a whole page, as a drop reason."""


def page_of(body: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return a body without its codings, or unchanged if they are already removed: crawlers decode and keep the header.

    Raises: BodyError("truncated_body") if the coding or the length in its headers shows that something is missing,
    "undecodable_body" if it is not coded as they say, "body_too_large" if it grows beyond `MAX_BYTES`.
    """
    named: dict[str, list[str]] = {}
    for name, value in headers:
        named.setdefault(name.lower(), []).append(value)
    codings = [*_listed(named.get("content-encoding", ())), *_listed(named.get("transfer-encoding", ()))]
    if not codings:
        _check_length(body, named.get("content-length", ()))
    for coding in reversed(codings):
        if not body or body.lstrip(MARKS).startswith(b"<"):
            break
        if coding not in DECODERS:
            raise BodyError("undecodable_body")
        body = DECODERS[coding](body)
    return body


def _listed(values: Iterable[str]) -> list[str]:
    """Return codings in the order in which they were applied (RFC 9110, 8.4)."""
    return [name for value in values for each in value.split(",") if (name := each.strip().lower()) not in ("", "identity")]


def _check_length(body: bytes, lengths: Iterable[str]) -> None:
    """Refuse a body that is shorter than announced (RFC 9112, 8). A longer body is one that the crawler has decoded."""
    declared = [int(length) for length in lengths if re.fullmatch("[0-9]{1,15}", length)]
    if declared and len(body) < min(declared):
        raise BodyError("truncated_body")


def _unzipped(body: bytes) -> bytes:
    """Decode with Python's reader: every member, zeros after them (gzip(1)), each byte once however small the members."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
            content = stream.read(MAX_BYTES + 1)
    except EOFError as error:
        raise BodyError("truncated_body") from error
    except (OSError, zlib.error) as error:  # It reads bytes in memory, so an error is about the bytes.
        raise BodyError("undecodable_body") from error
    return _bounded(content)


def _inflated(body: bytes) -> bytes:
    """Decode `deflate`: a zlib stream, or a raw stream from servers that took the name literally; browsers read both."""
    for kind in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        decoder = zlib.decompressobj(kind)
        try:
            content = _bounded(decoder.decompress(body, MAX_BYTES + 1))
        except zlib.error:
            continue  # Try the other kind; else it is a drop.
        if not decoder.eof:
            raise BodyError("truncated_body")
        if not decoder.unused_data.strip(b"\0"):
            return content
    raise BodyError("undecodable_body")


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise BodyError("body_too_large")
    return content


def _by_arrow(body: bytes, codec: str) -> bytes:
    try:
        with pa.input_stream(pa.BufferReader(body), compression=codec) as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:  # Also a cut one: Arrow does not distinguish it.
        raise BodyError("undecodable_body") from error
    return _bounded(content)


def _joined(body: bytes) -> bytes:
    """Join a chunked body (RFC 9112, 7.1), or return it unchanged if it has no chunks because the crawler joined them."""
    pieces, at = list[bytes](), 0
    while size := CHUNK_SIZE.match(body, at):
        if not (length := int(size[1], 16)):
            return b"".join(pieces)
        piece = body[size.end() : size.end() + length]
        if len(piece) < length:
            raise BodyError("truncated_body")
        pieces.append(piece)
        at = size.end() + length
        at += 2 if body.startswith(b"\r\n", at) else 1 if body.startswith(b"\n", at) else 0
    if at == 0:
        return body
    raise BodyError("truncated_body" if at >= len(body) else "undecodable_body")


DECODERS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "chunked": _joined,
        "gzip": _unzipped,
        "x-gzip": _unzipped,
        "deflate": _inflated,
        "br": lambda body: _by_arrow(body, "brotli"),
        "zstd": lambda body: _by_arrow(body, "zstd"),
    }
)
