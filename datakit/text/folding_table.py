"""What folding does to each code point, so that a compiled loop can fold most text without Python's `unicodedata`.

Folding (`datakit.text.folding.fold`) works on whole texts, because marks combine with the letter before them. Yet it works
code point by code point where nothing combines. A code point is free if its full decomposition begins with a character
of combining class 0 that is never the second of a pair that composes. The folding of a free one does not depend on what
stands before it. Two kinds of marks may follow it unchanged: those that never compose and are in canonical order, and those
that compose, if the letter before them composes with nothing. All else is left to the definition (Unicode 15.0, annex 15,
sections 9.1 and 5).
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datakit.text.folding_blocks import FoldingBlocks, folding_blocks
from datakit.text.invisible import INVISIBLE

KEPT, FOLLOWS, CHANGED, DROPPED, LEFT = (kind << 10 for kind in range(5))
"""Kinds of code points: a free one that folds to itself; one that folds to itself on conditions; a free one that folds to
others; one that is removed; one that is left to the definition.
"""
KIND, SECOND, FIRST, CLASS = 7 << 10, 1 << 9, 1 << 8, 255
"""Bits of an action beside its kind: composes with a code point before it; ends with a starter that composes with one
after it; canonical combining class of its last code point.
"""
MOST_GROWTH = 3
"""Bytes of a `CHANGED` code point's folding for each byte of its own. Longer ones are rare and `LEFT`."""
_LOOKED_UP = (
    range(0x80, 0x3400),
    range(0xA000, 0xAC00),
    range(0xF900, 0x12000),
    range(0x13430, 0x13440),
    range(0x16000, 0x17000),
    range(0x1B000, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE1000),
)
"""All others fold to themselves and combine with nothing. Hangul syllables are the exception."""
_OPEN_SYLLABLES = range(0xAC00, 0xD7A4, 28)
"""Of Hangul, without a final consonant, so that one composes with them."""
_JAMO_FIRST, _JAMO_SECOND = range(0x1100, 0x1113), (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))


@dataclass(frozen=True)
class FoldingTable:
    """Actions of all code points, and what they change to."""

    actions: NDArray[np.uint16]
    """[code points]: kind and bits. Pages of zeros (`KEPT`) take no memory."""
    places: NDArray[np.uint32]
    """[code points]: where the folding of a `CHANGED` one lies in `pool`: its length in bytes, then UTF-8."""
    pool: NDArray[np.uint8]
    blocks: FoldingBlocks


@cache
def folding_table() -> FoldingTable:
    """Return the table of this Python's Unicode version, made once in a process that meets characters beyond ASCII."""
    actions, places, pool = np.zeros(0x110000, np.uint16), np.zeros(0x110000, np.uint32), bytearray()
    in_place: dict[int, int] = {}
    letters = [chr(code) for block in _LOOKED_UP for code in block]
    whole = _each(letters, "NFKD")
    composed = _each(letters, "NFKC")
    cased = [text.casefold() for text in composed]
    folded = _each(cased, "NFKC")
    first, second = _composing(letters, whole)
    for letter, apart, once, lower, result in zip(letters, whole, composed, cased, folded, strict=True):
        combining = unicodedata.combining(letter)
        if letter == apart == result and not combining and letter not in first and letter not in second:
            continue
        if all(_starts(text, second) for text in (apart, lower)):
            bits = max(_last_class(apart), _last_class(lower))
            bits |= FIRST * any(_last_starter(text) in first for text in (once, result))
            change, size = result.encode(), len(letter.encode())
            kind = KEPT if letter == result else CHANGED if len(change) <= MOST_GROWTH * size else LEFT
            if kind == CHANGED:
                places[ord(letter)] = len(pool)
                pool += bytes([len(change)]) + change
                if len(change) == size:
                    in_place[ord(letter)] = int.from_bytes(letter.encode(), "little") ^ int.from_bytes(change, "little")
        else:
            bits = combining | SECOND * (letter in second) | FIRST * (letter in first)
            kind = FOLLOWS if letter == apart == lower else LEFT
        actions[ord(letter)] = kind | bits
    actions[_OPEN_SYLLABLES] = FIRST
    actions[[ord(letter) for letter in INVISIBLE.findall("".join(letters)) for letter in letter]] = DROPPED
    return FoldingTable(actions, places, np.frombuffer(bytes(pool), np.uint8), _blocks(actions[:0x10000], in_place))


def _blocks(actions: NDArray[np.uint16], in_place: Mapping[int, int]) -> FoldingBlocks:
    """Arrange the actions; `in_place`: what changes in the bytes of those that fold to as many bytes."""
    changes = np.zeros(actions.size, np.int64)
    changed = [code for code in in_place if code < actions.size and actions[code] & KIND == CHANGED]
    changes[changed] = [in_place[code] for code in changed]
    is_mark, is_classed = actions & KIND == FOLLOWS, actions & CLASS != 0
    return folding_blocks(
        changes,
        stops=(actions >= CHANGED) & (changes == 0),
        is_classed=is_classed,
        may_compose=(actions & FIRST != 0) | is_mark & is_classed,  # Through such a mark.
        not_after_classed=is_mark & is_classed,
        not_after_composing=is_mark & (actions & SECOND != 0),
    )


def _each(texts: Iterable[str], form: Literal["NFKC", "NFKD"]) -> list[str]:
    """Normalize each text apart: nothing composes across a line end."""
    return unicodedata.normalize(form, "\n".join(texts)).split("\n")


def _composing(letters: Iterable[str], whole: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the characters that compose with one after them, and those that compose with one before them."""
    first, second = set(map(chr, (*_JAMO_FIRST, *_OPEN_SYLLABLES))), set(map(chr, _JAMO_SECOND))
    for letter, apart in zip(letters, whole, strict=True):
        parts = unicodedata.decomposition(letter).split() if letter != apart else []
        if len(parts) == 2 and "<" not in parts[0] and unicodedata.normalize("NFC", letter) == letter:
            first.add(chr(int(parts[0], 16)))
            second.add(chr(int(parts[1], 16)))
    return first, second


def _starts(text: str, second: set[str]) -> bool:
    """Return whether the normal form of a text does not depend on what stands before it."""
    head = unicodedata.normalize("NFKD", text)[0]
    return unicodedata.combining(head) == 0 and head not in second


def _last_class(text: str) -> int:
    return unicodedata.combining(unicodedata.normalize("NFKD", text)[-1])


def _last_starter(text: str) -> str:
    return next(letter for letter in reversed(text) if not unicodedata.combining(letter))
