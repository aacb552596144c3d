"""Parts of git's packs: what stands before an object, its data, and what a delta makes of its base (gitformat-pack(5))."""

import mmap
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

MAX_OBJECT_BYTES = 64 << 20
"""Largest object that is read. Sources and messages are far below it."""

PIECE = 1 << 16
MAX_SHIFT = 56
"""Sizes and distances of more bits are damage."""

SHA1_BYTES = 20
COMMIT, TREE, BLOB = 1, 2, 3
KINDS: Mapping[int, bytes] = MappingProxyType({COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", 4: b"tag"})
OFFSET_DELTA, ID_DELTA = 6, 7


class BundleError(ValueError):
    """Why a file is no whole bundle."""


class AbsentError(LookupError):
    """Why an object cannot be had, as a drop reason: `missing_object` or `object_too_large`."""


class Entry(NamedTuple):
    """Where an object of the pack is: its kind, size and place, and for a delta the offset or id of its base."""

    kind: int
    size: int
    data_at: int
    base: int | bytes | None


def entry_at(pack: mmap.mmap, offset: int) -> Entry:
    """Read what stands before an object's data. Raises: BundleError."""
    byte, at = pack[offset], offset + 1
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 128:
        byte, at = pack[at], at + 1
        size, shift = size | (byte & 127) << shift, shift + 7
        if shift > MAX_SHIFT or at >= len(pack):
            raise BundleError(f"the size of the object at byte {offset} is none")
    if kind == ID_DELTA:
        return Entry(kind, size, at + SHA1_BYTES, pack[at : at + SHA1_BYTES])
    if kind == OFFSET_DELTA:
        byte, at = pack[at], at + 1
        distance = byte & 127
        while byte & 128:
            if distance >> MAX_SHIFT or at >= len(pack):
                raise BundleError(f"the base of the object at byte {offset} is none")
            byte, at = pack[at], at + 1
            distance = distance + 1 << 7 | byte & 127
        return Entry(kind, size, at, offset - distance)
    if kind not in KINDS:
        raise BundleError(f"the object at byte {offset} is of no kind ({kind})")
    return Entry(kind, size, at, None)


def inflate(pack: mmap.mmap, at: int, size: int, take: Callable[[bytes], object]) -> int:
    """Give what is deflated from `at` on in pieces, and return where it ends. Raises: BundleError if it has another size."""
    decoder, left = zlib.decompressobj(), size
    step = min(PIECE, size + (size >> 8) + 64)  # Of a small object no more than it can need: what is left over is copied.
    try:
        while not decoder.eof:
            if not (fed := pack[at : at + step]):
                raise BundleError("it ends in an object")
            at += len(fed)
            while fed and not decoder.eof:
                piece, fed = decoder.decompress(fed, PIECE), decoder.unconsumed_tail
                left -= len(piece)
                if left < 0:
                    raise BundleError("an object is larger than it says")
                take(piece)
    except zlib.error as error:
        raise BundleError(f"an object cannot be inflated ({error})") from error
    if left:
        raise BundleError("an object is smaller than it says")
    return at - len(decoder.unused_data)


def patched(base: bytes, delta: bytes) -> bytes:
    """Return what a delta makes of its base. Raises: BundleError for damage; AbsentError if the result is too large."""
    try:
        return _patched(base, delta)
    except IndexError as error:
        raise BundleError("a delta is cut") from error


def _patched(base: bytes, delta: bytes) -> bytes:
    sizes, at = list[int](), 0
    for _ in range(2):
        size = shift = 0
        while (byte := delta[at]) & 128 and shift < MAX_SHIFT:
            size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
        sizes.append(size | byte << shift)
        at += 1
    if sizes[1] > MAX_OBJECT_BYTES:
        raise AbsentError("object_too_large")
    pieces, left = list[bytes](), sizes[1]
    while at < len(delta) and left >= 0:
        byte, at = delta[at], at + 1
        if byte & 128:  # Copy from the base: which bytes of the place (4) and of the length (3) follow.
            start = length = 0
            for bit in range(7):
                if byte >> bit & 1:
                    if bit < 4:
                        start |= delta[at] << 8 * bit
                    else:
                        length |= delta[at] << 8 * (bit - 4)
                    at += 1
            piece = base[start : start + (length or 1 << 16)]
        else:
            piece, at = delta[at : at + byte], at + byte
        pieces.append(piece)
        left -= len(piece)
    if left or at != len(delta) or sizes[0] != len(base):
        raise BundleError("a delta does not fit its base")
    return b"".join(pieces)
