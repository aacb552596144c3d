"""The part of canonical text (`datakit.text.canonical_text`) that takes away formatting after folding, as a compiled loop."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from datakit.text.code_points import ASSIGNED
from datakit.text.compiled import compiled
from datakit.text.folding import END_OF_TEXT

APOSTROPHES = "‘’ʼ"
_WORD, _APOSTROPHE, _OTHER = range(3)
"""What a character beyond ASCII is: part of a word, removed, a space."""
_SPACE, _COMMA, _ZERO, _NINE = b" ,09"
_AT = np.uint64
"""An index of this type is not tested for being negative."""


def _ascii_table() -> bytes:
    """Byte translation: lower-case letters, keep digits and bytes of multi-byte characters, turn the rest into spaces."""
    table = bytearray([_SPACE]) * 128 + bytearray(range(128, 256))
    for byte in b"0123456789abcdefghijklmnopqrstuvwxyz":
        table[byte] = byte
    for byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[byte] = byte + 32
    return bytes(table)


ASCII_TABLE = _ascii_table()


def without_formatting(data: NDArray[np.uint8], num_texts: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the canonical words of folded UTF-8 texts, and int64 [texts + 1] the start of each text.

    Each text has `END_OF_TEXT` after it, which becomes a space.
    """
    return _without_formatting(data, _ascii(), _sorts(), num_texts)


@compiled
def _without_formatting(
    data: NDArray[np.uint8], table: NDArray[np.uint8], sorts: NDArray[np.uint8], num_texts: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """`last` is the byte before, of the text without apostrophes beyond ASCII: they may stand inside a number."""
    out, starts = np.empty(data.size, np.uint8), np.zeros(num_texts + 1, np.int64)
    size, place, text, in_run, last = 0, 0, 0, False, np.int64(_SPACE)
    while place < data.size:
        lead = np.int64(data[_AT(place)])
        if lead < 0x80:
            byte = table[_AT(lead)]
            if lead == _COMMA and _ZERO <= last <= _NINE:
                ahead, digits = place + 1, 0
                while digits < 4 and ahead < data.size:
                    digit, width = np.int64(data[_AT(ahead)]), 1
                    if _ZERO <= digit <= _NINE:
                        digits += 1
                    elif 0x80 <= digit < END_OF_TEXT:
                        width = 2 if digit < 0xE0 else 3 if digit < 0xF0 else 4
                        code = digit & (0x7F >> width)
                        for at in range(ahead + 1, ahead + width):
                            code = code << 6 | np.int64(data[_AT(at)]) & 0x3F
                        if sorts[_AT(code)] != _APOSTROPHE:
                            break
                    else:
                        break
                    ahead += width
                byte = 0 if digits == 3 else byte
            out[_AT(size)] = byte
            size += byte != 0
            place, in_run, last = place + 1, False, lead
            continue
        if lead == END_OF_TEXT:
            out[_AT(size)] = _SPACE
            size, place, text, in_run, last = size + 1, place + 1, text + 1, False, lead
            starts[text] = size
            continue
        width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        code = lead & (0x7F >> width)
        for at in range(place + 1, place + width):
            code = code << 6 | np.int64(data[_AT(at)]) & 0x3F
        sort = sorts[_AT(code)]
        if sort == _WORD:
            for at in range(place, place + width):
                out[_AT(size)] = data[_AT(at)]
                size += 1
            in_run, last = False, lead
        elif sort == _OTHER:
            if not in_run:
                out[_AT(size)] = _SPACE
                size += 1
            in_run, last = True, np.int64(_SPACE)
        place += width
    return out[:size].copy(), starts


@cache
def _ascii() -> NDArray[np.uint8]:
    """Return uint8 [256]: `ASCII_TABLE` with 0 for the apostrophe, which is removed."""
    table = np.frombuffer(ASCII_TABLE, np.uint8).copy()
    table[ord("'")] = 0
    return table


@cache
def _sorts() -> NDArray[np.uint8]:
    """Return uint8 [code points]: `_WORD`, `_APOSTROPHE` or `_OTHER`."""
    sorts = np.full(0x110000, _OTHER, np.uint8)
    for block in ASSIGNED:
        sorts[block.start : block.stop][[chr(code).isalnum() for code in block]] = _WORD
    sorts[[ord(mark) for mark in APOSTROPHES]] = _APOSTROPHE
    return sorts
