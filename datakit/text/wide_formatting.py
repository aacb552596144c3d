"""The part of canonical text (`datakit.text.canonical_text`) that takes away formatting beyond ASCII, as a compiled loop."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from datakit.text.code_points import ASSIGNED
from datakit.text.compiled import compiled
from datakit.text.folding import END_OF_TEXT

APOSTROPHES = "‘’ʼ"
_WORD, _APOSTROPHE, _OTHER = range(3)
"""What a character beyond ASCII is: part of a word, removed, a space."""
(_SPACE,) = b" "


def without_formatting(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return folded UTF-8 texts, each with `END_OF_TEXT` after it, without apostrophes beyond ASCII, and with a space for
    each run of other characters beyond ASCII that are neither letters nor digits. ASCII stays.
    """
    return _without_formatting(data, _sorts())


@compiled
def _without_formatting(data: NDArray[np.uint8], sorts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    out, size, place, in_run = np.empty(data.size, np.uint8), 0, 0, False
    while place < data.size:
        lead = np.int64(data[np.uint64(place)])
        if lead < 0x80 or lead == END_OF_TEXT:
            out[np.uint64(size)] = lead
            size, place, in_run = size + 1, place + 1, False
            continue
        width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        code = lead & (0x7F >> width)
        for byte in range(place + 1, place + width):
            code = code << 6 | np.int64(data[np.uint64(byte)]) & 0x3F
        sort = sorts[np.uint64(code)]
        if sort == _WORD:
            for byte in range(place, place + width):
                out[np.uint64(size)] = data[np.uint64(byte)]
                size += 1
            in_run = False
        elif sort == _OTHER:
            if not in_run:
                out[np.uint64(size)] = _SPACE
                size += 1
            in_run = True
        place += width
    return out[:size]


@cache
def _sorts() -> NDArray[np.uint8]:
    """Return uint8 [code points]: `_WORD`, `_APOSTROPHE` or `_OTHER`."""
    sorts = np.full(0x110000, _OTHER, np.uint8)
    for block in ASSIGNED:
        sorts[block.start : block.stop][[chr(code).isalnum() for code in block]] = _WORD
    sorts[[ord(mark) for mark in APOSTROPHES]] = _APOSTROPHE
    return sorts
