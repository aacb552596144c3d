"""Lines of plain, gzip and zstd files, whole or in pieces that are read alone, in bounded memory."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

READ_BYTES = 1 << 20
AFTER_BYTES = 1 << 16
"""Bytes read at once behind a piece, for the rest of its last line."""

MAX_RECORD_BYTES = 128 << 20
"""Bytes of the longest line or row. A longer one is a drop: 600 kB of gzip may hold a line of 600 MB."""

COMPRESSIONS = MappingProxyType({b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"})
"""Formats by their first bytes, because names differ: `.zst`, `.zstd`, `.json.gz`, none."""

SKIPPABLE = b"\x2a\x4d\x18"
"""The last bytes of the magic number of a skippable frame of zstd (RFC 8878, section 3.1.2); the first is 0x50 to 0x5f."""


@dataclass(frozen=True)
class Span:
    """A piece of a large file that is read alone: row groups `[start, stop)` of Parquet, or the lines of JSONL that begin
    in the bytes `[start, stop)`. In a compressed file these are whole gzip members or zstd frames.
    """

    start: int
    stop: int
    before: int
    """Records before it (in JSONL: line ends), so that places keep their numbers. In plain JSONL the byte before `start`
    is not counted.
    """

    is_inside: bool = False
    """Whether a compressed piece begins inside a line, which belongs to an earlier piece."""

    @property
    def is_first(self) -> bool:
        """Whether it begins its file."""
        return self.start == 0 and self.before == 0


class _GzipFile(gzip.GzipFile):
    """Decompress with Python's reader, which is as fast as Arrow's. Arrow takes zeros after the last member for damage,
    but tapes and disks pad files with them, and gzip(1) allows it. Anything else there is damage.
    """

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except (EOFError, zlib.error) as error:
            raise gzip.BadGzipFile(str(error)) from error


class _Slice(io.RawIOBase):
    """The bytes `[start, stop)` of an open file as a stream."""

    def __init__(self, file: io.FileIO, start: int, stop: int) -> None:
        file.seek(start)
        self.file, self.left = file, stop - start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self.file.readinto(memoryview(buffer)[: self.left])
        self.left -= size
        return size


def compression_of(path: Path) -> str | None:
    """Return gzip, zstd or None, by the first bytes."""
    with path.open("rb") as raw:
        head = raw.read(4)
    if head[1:] == SKIPPABLE and head[0] >> 4 == 5:
        return "zstd"  # pzstd and seekable writers put a skippable frame of their own before the data.
    return next((kind for magic, kind in COMPRESSIONS.items() if head.startswith(magic)), None)


def decompressed(path: Path) -> pa.NativeFile | gzip.GzipFile:
    """Open the bytes of a plain, gzip or zstd file. Reading raises OSError if a compressed file is cut or damaged."""
    compression = compression_of(path)
    return _GzipFile(path) if compression == "gzip" else pa.input_stream(str(path), compression=compression)


@contextmanager
def decompressed_part(path: Path, start: int, stop: int) -> Iterator[pa.NativeFile | gzip.GzipFile]:
    """Open whole gzip members or zstd frames: the bytes `[start, stop)` of a compressed file. Reading raises as for
    `decompressed`.
    """
    compression = compression_of(path)
    with path.open("rb", buffering=0) as file:
        part = io.BufferedReader(_Slice(file, start, stop), AFTER_BYTES)
        with _GzipFile(fileobj=part) if compression == "gzip" else pa.input_stream(part, compression=compression) as stream:
            yield stream


def numbered_lines(path: Path, span: Span | None) -> Iterator[tuple[int, bytes | bytearray | None]]:
    """Return lines of a file, or those that begin in a span of it, with their numbers in the file; None for a line of more
    than `MAX_RECORD_BYTES`, which is never held.

    Raises: OSError if a compressed file is cut or damaged.
    """
    if span is None:
        number, lines = 1, _all_lines(path)
    elif compression_of(path) is None:
        inside = span.start > 0  # From the byte before: what precedes the first line end belongs to an earlier line.
        number = span.before + 2 if inside else 1
        lines = _lines(_bytes(path, max(span.start - 1, 0), span.stop), _bytes(path, span.stop), inside)
    else:
        number = span.before + 1 + span.is_inside
        lines = _lines(_part(path, span.start, span.stop), _part(path, span.stop), span.is_inside)
    return map(_numbered, count(number), lines)  # `enumerate` and `zip` would hold a line until they have the next.


def _numbered(number: int, line: bytes | bytearray | None) -> tuple[int, bytes | bytearray | None]:
    return number, line


def pieces(stream: Any, read_bytes: int | None = None) -> Iterator[bytes]:
    """Yield what a stream has, `read_bytes` or `READ_BYTES` at once."""
    while piece := stream.read(read_bytes or READ_BYTES):
        yield piece


def _all_lines(path: Path) -> Iterator[bytes | bytearray | None]:
    with decompressed(path) as stream:
        yield from _lines(pieces(stream))


def _bytes(path: Path, start: int, stop: int | None = None) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        end = path.stat().st_size if stop is None else stop
        yield from pieces(_Slice(file, start, end), AFTER_BYTES if stop is None else READ_BYTES)


def _part(path: Path, start: int, stop: int | None = None) -> Iterator[bytes]:
    size = path.stat().st_size
    if start < size:
        with decompressed_part(path, start, size if stop is None else stop) as stream:
            yield from pieces(stream, AFTER_BYTES if stop is None else READ_BYTES)


def _lines(own: Iterable[bytes], after: Iterable[bytes] = (), is_inside: bool = False) -> Iterator[bytes | bytearray | None]:
    r"""Yield the lines that begin in `own`; the last may end in `after`. Lines end at b"\n" only: text holds the other line
    ends that `splitlines` would cut at. `is_inside`: the first belongs to others and is left out.
    """
    held, is_held = _Held(), not is_inside
    for piece in own:
        first, *others = piece.split(b"\n")
        if is_held:
            held.add(first)
        if others:
            if is_held:
                yield held.take()
            *whole, rest = others
            yield from (line if len(line) <= MAX_RECORD_BYTES else None for line in whole)
            held.add(rest)
            is_held = True
    if held.is_empty:
        return
    for piece in after:
        first, *others = piece.split(b"\n", 1)
        held.add(first)
        if others or held.is_too_long:
            break
    yield held.take()


class _Held:
    """The beginning of a line whose end has not been read. It grows in place: a line is not held twice."""

    def __init__(self) -> None:
        self.line, self.is_too_long = bytearray(), False

    @property
    def is_empty(self) -> bool:
        return not self.line and not self.is_too_long

    def add(self, piece: bytes) -> None:
        if self.is_too_long or len(self.line) + len(piece) > MAX_RECORD_BYTES:
            self.line, self.is_too_long = bytearray(), True
        else:
            self.line += piece

    def take(self) -> bytearray | None:
        line = None if self.is_too_long else self.line
        self.line, self.is_too_long = bytearray(), False
        return line
