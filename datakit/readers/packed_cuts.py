"""Cuts of compressed record files, so that pieces of one are read in parallel.

A gzip file may be cut between members (BGZF, `pigz -i`, `cat`), a zstd file between frames (pzstd, `t2sz`, `cat`).
Frames of zstd say where they end. Members of gzip do not, and their first bytes may also occur inside a member. So cuts
are looked for, and then every piece is decompressed once, in parallel: a piece that is no series of whole members, with
their checksums, takes all cuts of its file back. The first piece begins at a member, so by induction all others do.
"""

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from datakit.readers.lines import READ_BYTES, SKIPPABLE, Span, compression_of, decompressed, decompressed_part, pieces
from datakit.sources.record import is_damage

GZIP_MEMBER = b"\x1f\x8b\x08"
GZIP_RESERVED = 0xE0
"""Flags of a member that are always 0 (RFC 1952, section 2.3.1)."""

TRIED_BYTES = 1 << 16
"""Bytes of a member that must decompress before a cut is considered."""

ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
ZSTD_HEADER_BYTES = 18
"""The longest header of a frame, with its magic number (RFC 8878, section 3.1.1)."""


def packed_parts(path: Path, target_bytes: int) -> list[tuple[int, int]]:
    """Return byte ranges of a gzip or zstd file of about `target_bytes` or more that end at members or frames. Cuts of a
    gzip file are likely and not sure: see `count_part`.
    """
    size = path.stat().st_size
    if compression_of(path) == "gzip":
        starts = list(_member_starts(path, target_bytes))
    else:
        starts = [0]
        for end in _frame_ends(path):
            if end - starts[-1] >= target_bytes and end < size:
                starts.append(end)
    return list(pairwise([*starts, size]))


def count_part(folder: Path, path: Path, start: int, stop: int) -> dict[str, Any]:
    """Decompress one part, and count its line ends. `is_whole`: whether it is a series of whole members or frames;
    `is_ended`: whether its last byte ends a line, None if it has no byte.
    """
    ends, last = 0, b""
    try:
        with decompressed_part(path, start, stop) as stream:
            for piece in pieces(stream):
                ends, last = ends + piece.count(b"\n"), piece
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        return {"is_whole": False}
    return {"is_whole": True, "line_ends": ends, "is_ended": last.endswith(b"\n") if last else None}


def packed_spans(parts: Sequence[tuple[int, int]], counted: Sequence[Mapping[str, Any]]) -> list[Span | None]:
    """Return the pieces of a file by what was counted in its parts; [None], the whole file, if a cut was wrong."""
    if not all(count["is_whole"] for count in counted):
        return [None]
    spans: list[Span | None] = []
    before, is_inside = 0, False
    for (start, stop), count in zip(parts, counted, strict=True):
        spans.append(Span(start, stop, before, is_inside))
        before += count["line_ends"]
        is_inside = is_inside if count["is_ended"] is None else not count["is_ended"]
    return spans


def write_plain_parts(folder: Path, path: Path, stem: str, target_bytes: int) -> dict[str, Any]:
    """Decompress a file once, and write its lines as zstd files `<stem>-00000.jsonl.zst`, ... of at least `target_bytes` of
    whole lines each, which are held in no memory. `parts`: name, bytes and line ends of each; `is_whole`: whether the file is.
    """
    (folder / stem).parent.mkdir(parents=True, exist_ok=True)
    parts: list[tuple[str, int, int]] = []
    try:
        with decompressed(path) as stream:
            source = _Pushed(pieces(stream))
            while (first := next(source, None)) is not None:
                name = f"{stem}-{len(parts):05d}.jsonl.zst"
                with pa.output_stream(str(folder / name), compression="zstd") as sink:
                    ends = _write_lines(sink, first, source, target_bytes)
                parts.append((name, (folder / name).stat().st_size, ends))
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        return {"is_whole": False}
    return {"is_whole": True, "parts": parts}


class _Pushed(Iterator[bytes]):
    """Pieces of a stream, of which the rest of one may be given back."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self.source, self.back = source, b""

    def __next__(self) -> bytes:
        piece, self.back = self.back or next(self.source), b""
        return piece


def _write_lines(sink: pa.NativeFile, piece: bytes | None, source: _Pushed, target_bytes: int) -> int:
    """Write pieces up to the first line end at or after `target_bytes`; return the line ends."""
    written = ends = 0
    while piece:
        cut = piece.find(b"\n", max(0, target_bytes - written - 1)) + 1
        taken = piece[:cut] if cut else piece
        sink.write(taken)
        written, ends = written + len(taken), ends + taken.count(b"\n")
        if cut:
            source.back = piece[cut:]
            break
        piece = next(source, None)
    return ends


def _member_starts(path: Path, target_bytes: int) -> Iterator[int]:
    """Yield 0, and where members seem to begin: the first one `target_bytes` or more after the last."""
    yield 0
    with path.open("rb") as file:
        base, held = target_bytes, b""
        file.seek(base)
        while piece := file.read(READ_BYTES):
            held += piece
            found = held.find(GZIP_MEMBER)
            while found >= 0 and not _is_member(file.fileno(), base + found):
                found = held.find(GZIP_MEMBER, found + 1)
            if found >= 0:
                yield base + found
                base, held = base + found + target_bytes, b""
                file.seek(base)
            else:
                keep = held[-len(GZIP_MEMBER) + 1 :]
                base, held = base + len(held) - len(keep), keep


def _is_member(file: int, start: int) -> bool:
    """Whether the first `TRIED_BYTES` from here on decompress."""
    head = os.pread(file, TRIED_BYTES, start)
    if len(head) < 18 or head[3] & GZIP_RESERVED:  # The shortest member.
        return False
    decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        decoder.decompress(head, READ_BYTES)
    except zlib.error:
        return False
    return True


def _frame_ends(path: Path) -> Iterator[int]:
    """Yield where the frames of a zstd file end, by the sizes in front of their blocks; nothing is decompressed. What is no
    frame, or is cut, has no end.
    """
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while (end := _frame_end(file.fileno(), at)) is not None and end <= size:
            yield end
            at = end


def _frame_end(file: int, at: int) -> int | None:
    head = os.pread(file, ZSTD_HEADER_BYTES, at)
    if len(head) >= 8 and head[1:4] == SKIPPABLE and head[0] >> 4 == 5:
        return at + 8 + int.from_bytes(head[4:8], "little")
    if len(head) < 5 or not head.startswith(ZSTD_FRAME):
        return None
    flags = head[4]
    is_single = flags >> 5 & 1
    content_bytes = (is_single, 2, 4, 8)[flags >> 6]
    at += 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3] + content_bytes
    while len(block := os.pread(file, 3, at)) == 3:
        header = int.from_bytes(block, "little")
        is_last, kind, block_bytes = header & 1, header >> 1 & 3, header >> 3
        if kind == 3:  # Reserved.
            return None
        at += 3 + (1 if kind == 1 else block_bytes)  # A block of one byte that repeats holds that byte.
        if is_last:
            return at + 4 * (flags >> 2 & 1)
    return None
