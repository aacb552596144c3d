"""One form for every way to write the same letters: the step before words are split, hashed or matched.

Near-duplicates and contamination both fold, so a document in another case, in decomposed or full-width letters, or with
invisible characters between its letters has the same words. Lower-casing ASCII is a byte operation of the caller.

`fold` and `datakit.text.word_kinds` define a word for the whole engine. The definition has no version of its own: a
change of it raises the version of every stage that hashes words (the second argument of its `Stage`) and
`CANONICAL_TEXT_VERSION`, and a test pins its digest. One exception: near-duplicates do not unescape HTML entities, as
canonical text does before it folds.
"""

import unicodedata

import numpy as np
from numpy.typing import NDArray

from datakit.text.compiled import compiled
from datakit.text.folding_blocks import fold_in_place
from datakit.text.folding_table import (
    CHANGED,
    CLASS,
    DROPPED,
    FIRST,
    FOLLOWS,
    KEPT,
    KIND,
    LEFT,
    MOST_GROWTH,
    SECOND,
    folding_table,
)
from datakit.text.invisible import INVISIBLE

END_OF_TEXT = 0xFF
"""A byte that never occurs in UTF-8; it separates the texts of a batch."""
_SPACE, _NEWLINE = b" \n"
_AT = np.uint64
"""An index of this type is not tested for being negative, which takes a third of the time (2026-11-27)."""


def fold(text: str) -> str:
    """Return the text without invisible characters, in NFKC, case folded, and in NFKC again.

    Folding the case of a composed letter can leave it decomposed, so the second NFKC is needed (Unicode 15.0, section
    3.13, NFKC_Casefold). The Turkish dotted capital I folds to "i" and a dot, as Unicode says for texts of unknown
    language.

    >>> fold("STRASSE") == fold("straße"), fold("Ｆｕｌｌ"), fold("soft\\u00adhyphen")
    (True, 'full', 'softhyphen')
    """
    composed = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    return unicodedata.normalize("NFKC", composed.casefold())


def fold_batch(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return UTF-8 texts that each end with `END_OF_TEXT`, folded. ASCII letters may keep their case.

    Most characters need one look at a table. What composes with its neighbours is folded by `fold`, in pieces of a few
    characters, all of them at once.
    """
    table = folding_table()
    folded, stops = fold_in_place(data, table.blocks.rows, table.blocks.pages)
    if not stops.size:
        return folded
    out, places, pieces = _fold_stops(data, folded, stops, table.actions, table.places, table.pool)
    if not places.size:
        return out
    return _with_pieces(out, places, np.frombuffer(fold(pieces.tobytes().decode()).encode(), np.uint8))


@compiled
def _fold_stops(
    data: NDArray[np.uint8],
    folded: NDArray[np.uint8],
    stops: NDArray[np.int64],
    actions: NDArray[np.uint16],
    changes: NDArray[np.uint32],
    pool: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]]:
    """Fold the characters at `stops` by `FoldingTable`; all others stand in `folded`. Return the texts without what the table
    leaves to `fold`, where that stands, and that, each piece followed by a line end.

    A piece goes from the last character that folds without regard to what stands before it to the next one. What needs no
    look is copied in runs, from `done` on. `base` is where a piece could begin, and `base_size` where it would stand.
    """
    out, places = np.empty(MOST_GROWTH * data.size, np.uint8), np.empty(data.size // 2 + 1, np.int64)
    pieces = np.empty(data.size * 3 // 2 + 1, np.uint8)
    size, piece_size, number, done, base, base_size = 0, 0, 0, 0, 0, 0
    for place in stops:
        if place < done:
            continue
        lead = np.int64(data[_AT(place)])
        width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        code = lead & (0x7F >> width)
        for byte in range(place + 1, place + width):
            code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
        action = np.int64(actions[_AT(code)])
        kind, change, back = action & KIND, np.int64(changes[_AT(code)]), place
        if kind == KEPT:
            continue
        if kind == FOLLOWS:  # What it follows: the class of the character before, and whether the last starter composes.
            class_before, composes = -1, FIRST
            while back > 0:
                back -= 1
                lead = np.int64(data[_AT(back)])
                if 0x80 <= lead < 0xC0:
                    continue
                before = FIRST
                if 0x80 <= lead < END_OF_TEXT:
                    length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                    code = lead & (0x7F >> length)
                    for byte in range(back + 1, back + length):
                        code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
                    before = np.int64(actions[_AT(code)])
                if before & KIND == DROPPED:
                    continue
                class_before = before & CLASS if class_before < 0 else class_before
                if before & KIND != FOLLOWS or before & CLASS == 0:
                    composes = before & FIRST
                    break
            if not (action & SECOND and composes) and not 0 < action & CLASS < class_before:
                continue
        back, copied_to = place, place
        while back > done and kind != CHANGED:
            back -= 1
            lead = np.int64(data[_AT(back)])
            if 0x80 <= lead < 0xC0:
                continue
            code = lead & 0x7F
            if 0x80 <= lead < END_OF_TEXT:
                length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                code = lead & (0x7F >> length)
                for byte in range(back + 1, back + length):
                    code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
            if np.int64(actions[_AT(code)]) & KIND in (KEPT, CHANGED):
                base = back if _SPACE < lead < END_OF_TEXT else back + 1
                base_size = size + base - done
                break
        if kind in (FOLLOWS, LEFT):
            size, copied_to = (base_size, base) if base < done else (size, base)
        shift = size - done
        for byte in range(done, copied_to):
            out[_AT(byte + shift)] = folded[_AT(byte)]
        size, done = max(size, copied_to + shift), place + width
        if kind == CHANGED:
            base, base_size = place, size
            for byte in range(change + 1, change + 1 + pool[_AT(change)]):
                out[_AT(size)] = pool[_AT(byte)]
                size += 1
        if kind in (FOLLOWS, LEFT):
            while 0x80 <= data[_AT(done)] < END_OF_TEXT:
                lead = np.int64(data[_AT(done)])
                width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                code = lead & (0x7F >> width)
                for byte in range(done + 1, done + width):
                    code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
                if np.int64(actions[_AT(code)]) & KIND in (KEPT, CHANGED):
                    break
                done += width
            for byte in range(base, done):
                pieces[_AT(piece_size)] = data[_AT(byte)]
                piece_size += 1
            pieces[_AT(piece_size)] = _NEWLINE
            places[_AT(number)] = size
            piece_size, number = piece_size + 1, number + 1
            base, base_size = done, size
    shift = size - done
    for byte in range(done, data.size):
        out[_AT(byte + shift)] = folded[_AT(byte)]
    return out[: data.size + shift], places[:number].copy(), pieces[:piece_size].copy()


@compiled
def _with_pieces(data: NDArray[np.uint8], places: NDArray[np.int64], pieces: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Insert the pieces, each followed by a line end, at their places."""
    out = np.empty(data.size + pieces.size, np.uint8)
    size, done, piece = 0, 0, 0
    for number in range(places.size):
        shift = size - done
        for byte in range(done, places[number]):
            out[_AT(byte + shift)] = data[_AT(byte)]
        size, done = places[number] + shift, places[number]
        while pieces[_AT(piece)] != _NEWLINE:
            out[_AT(size)] = pieces[_AT(piece)]
            size, piece = size + 1, piece + 1
        piece += 1
    shift = size - done
    for byte in range(done, data.size):
        out[_AT(byte + shift)] = data[_AT(byte)]
    return out[: data.size + shift]
