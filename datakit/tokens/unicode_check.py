"""Characters that this Python's Unicode does not assign: two engines may take them for different kinds of characters.

A split pattern asks what is a letter, and an engine answers from the Unicode version that it was built with. U+A7CF is
a letter since Unicode 17; gigatoken 0.10.0 knows it, tokenizers 0.22 does not, and one document of 2,741 of a real
corpus (a table of characters) had other ids (benchmarks/notes/2026-11-22-tokenization.md). Versions only add
characters, so both engines agree on what a version older than both assigns: Python 3.12 has 15.0.
"""

import unicodedata
from functools import lru_cache

import numpy as np
from jaxtyping import Bool

ASSIGNED_PLANES = (range(0x40000), range(0xE0000, 0xE1000))
"""Ranges where characters are assigned, without private use (from U+F0000); no version so far assigns others."""
CODE_POINTS = 0x110000
PRIVATE_PLANES = 0xF0000


def has_unassigned(text: str) -> bool:
    """Whether a character of the text is unassigned in `unicodedata.unidata_version`."""
    if text.isascii():
        return False
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return bool(_unassigned()[characters].any())


@lru_cache(maxsize=1)
def _unassigned() -> Bool[np.ndarray, " 1114112"]:
    """Return the answer by code point; it takes 30 ms once a process."""
    table = np.ones(CODE_POINTS, bool)
    table[PRIVATE_PLANES:] = False
    for plane in ASSIGNED_PLANES:
        table[plane.start : plane.stop] = [unicodedata.category(chr(code)) == "Cn" for code in plane]
    return table
