"""The folding table arranged by bytes of UTF-8, so that most text is folded without a branch for each character.

The loop looks at every byte with the two after it. A byte that begins no character has an empty entry. A character that
folds to itself, or to another of as many bytes, has its change in its entry. A mark may follow some characters only: its
entry says which it must not follow, and each entry says what its character is. All others are stops.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datakit.text.compiled import compiled

_CHANGES, _IS, _NOT_AFTER, _STOP, _IS_OF_FOUR = 0, 24, 26, 28, 29
"""First bits of an entry's parts: changes of three bytes, to be combined with exclusive or; two facts of the character (it
ends with a mark of a combining class, it may compose with what follows); those that it must not follow; one bit of a stop;
the two facts again of a character of four bytes.
"""
_PAGE_PLACE = 32
"""First bit of a row's place in `pages`."""
_ASCII = 2 << _IS
_PAGE = 64
_TWO, _THREE = range(0x80, 0x800), range(0x800, 0x10000)
_BLOCK = 256
_HIGH_BITS = np.uint64(0x8080808080808080)
_AT = np.uint64
"""An index of this type is not tested for being negative."""


@dataclass(frozen=True)
class FoldingBlocks:
    """Entries of characters by their bytes."""

    rows: NDArray[np.int64]
    """[first byte, lower six bits of the second]: the entry, and the place in `pages` of those that a third byte decides."""
    pages: NDArray[np.int64]
    """Entries by the lower six bits of the third byte; the first page is empty."""


def folding_blocks(
    changes: NDArray[np.int64],
    stops: NDArray[np.bool_],
    is_classed: NDArray[np.bool_],
    may_compose: NDArray[np.bool_],
    not_after_classed: NDArray[np.bool_],
    not_after_composing: NDArray[np.bool_],
) -> FoldingBlocks:
    """Arrange what is known of the code points up to U+FFFF, each [code points]."""
    flags = (is_classed | stops, may_compose | stops, not_after_classed, not_after_composing, stops)
    each = changes << _CHANGES
    for bit, flag in enumerate(flags, start=_IS):
        each |= flag.astype(np.int64) << bit
    pages = each[_THREE.start : _THREE.stop].reshape(-1, _PAGE)
    is_own = (pages & ~np.int64(3 << _IS) != 0).any(axis=1)  # All others have one entry, of what any of them is.
    rows = np.zeros((256, _PAGE), np.int64)
    rows[:0x80], rows[0xFF], rows[0xF0:0xF8] = _ASCII, _ASCII, 1 << _STOP | 3 << _IS | 3 << _IS_OF_FOUR
    two, three = np.array(_TWO), np.array(_THREE[::_PAGE])
    rows[0xC0 | two >> 6, two & 63] = each[_TWO.start : _TWO.stop]
    places = _PAGE * np.cumsum(is_own) << _PAGE_PLACE
    rows[0xE0 | three >> 12, three >> 6 & 63] = np.where(is_own, places, np.bitwise_or.reduce(pages, axis=1))
    return FoldingBlocks(rows.ravel(), np.concatenate([np.zeros(_PAGE, np.int64), pages[is_own].ravel()]))


@compiled
def fold_in_place(
    data: NDArray[np.uint8], rows: NDArray[np.int64], pages: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return valid UTF-8 with each character folded that folds to as many bytes, and where the characters begin that
    need another look. Texts end as `datakit.text.folding.fold_batch` says.
    """
    folded, stops, number = np.empty(data.size, np.uint8), np.empty(data.size, np.int64), 0
    entries, marks = np.full(_BLOCK + 4, _ASCII, np.uint32), np.zeros(_BLOCK, np.uint8)
    marks_of_eight, eights = marks.view(np.uint64), data[: data.size // 8 * 8].view(np.uint64)
    end = max(data.size - 2, 0) // _BLOCK * _BLOCK
    for low in range(0, end, _BLOCK):
        for byte in range(4):  # Entries of the block before: a character of four bytes may end it.
            entries[_AT(byte)] = entries[_AT(byte + _BLOCK)]
        for eight in range(_BLOCK // 8):
            if eights[_AT(low // 8 + eight)] & _HIGH_BITS:
                for byte in range(8 * eight, 8 * eight + 8):
                    first, second = np.int64(data[_AT(low + byte)]), np.int64(data[_AT(low + byte + 1)])
                    row = rows[_AT(first << 6 | second & 63)]
                    entries[_AT(byte + 4)] = row | pages[_AT((row >> _PAGE_PLACE) + (np.int64(data[_AT(low + byte + 2)]) & 63))]
            else:
                for byte in range(8 * eight, 8 * eight + 8):
                    entries[_AT(byte + 4)] = _ASCII
        for byte in range(_BLOCK):
            own, before, earlier = entries[_AT(byte + 4)], entries[_AT(byte + 3)], entries[_AT(byte + 2)]
            follows = (before | earlier | entries[_AT(byte + 1)]) >> _IS | entries[_AT(byte)] >> _IS_OF_FOUR
            marks[_AT(byte)] = own >> _NOT_AFTER & follows & 3 | own >> _STOP
            folded[_AT(low + byte)] = data[_AT(low + byte)] ^ (own ^ before >> 8 ^ earlier >> 16) & 0xFF
        for eight in range(_BLOCK // 8):
            if marks_of_eight[_AT(eight)]:
                for byte in range(8 * eight, 8 * eight + 8):
                    stops[_AT(number)] = low + byte
                    number += marks[_AT(byte)] != 0
    for byte in range(end, data.size):
        folded[_AT(byte)] = data[_AT(byte)]
        if 0xC0 <= data[_AT(byte)] < 0xFF:
            stops[_AT(number)] = byte
            number += 1
    if end:
        folded[_AT(end)] ^= (entries[_BLOCK + 3] >> 8 ^ entries[_BLOCK + 2] >> 16) & 0xFF
        folded[_AT(end + 1)] ^= entries[_BLOCK + 3] >> 16 & 0xFF
    return folded, stops[:number].copy()
