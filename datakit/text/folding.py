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
from datakit.text.folding_table import (
    CHANGED,
    CLASS,
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
_HIGH_BITS = np.uint64(0x8080808080808080)
_PASSED = 8
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
    folded, places, pieces = _fold_characters(data, table.actions, table.places, table.pool, table.stops)
    if not places.size:
        return folded
    return _with_pieces(folded, places, np.frombuffer(fold(pieces.tobytes().decode()).encode(), np.uint8))


@compiled
def _fold_characters(
    data: NDArray[np.uint8],
    actions: NDArray[np.uint16],
    changes: NDArray[np.uint32],
    pool: NDArray[np.uint8],
    stops: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]]:
    """Fold by `FoldingTable`. Return the texts without what it leaves to `fold`, where that stands, and that, each piece
    followed by a line end.

    A piece goes from the last character that folds without regard to what stands before it to the next one. What folds
    to itself is copied in runs, from `done` on. `base` is where a piece could begin, and `base_size` where it would stand.
    Eight bytes without a stop are passed at once, which is tried less often where it fails.
    """
    out, places = np.empty(MOST_GROWTH * data.size, np.uint8), np.empty(data.size // 2 + 1, np.int64)
    pieces = np.empty(data.size * 3 // 2 + 1, np.uint8)
    eights = data[: data.size // 8 * 8].view(np.uint64)
    size, piece_size, number = 0, 0, 0
    place, done, base, base_size, last, probe, step = 0, 0, 0, 0, FIRST, 0, _PASSED
    while True:
        action, code, width = 0, 0, 0
        while place < data.size:  # The widths are written out: one formula for all takes half as long again.
            lead = np.int64(data[_AT(place)])
            if lead < 0x80 or lead == END_OF_TEXT:
                place += 1
                while place & 7 == 0 and place >> 3 < eights.size and not eights[_AT(place >> 3)] & _HIGH_BITS:
                    place += 8
                last = FIRST
                continue
            if place >= probe:
                back = place
                while place + _PASSED < data.size:
                    stop = 0
                    pair = np.int64(data[_AT(place)])
                    for byte in range(place + 1, place + _PASSED + 1):
                        pair = (pair & 0xFF) << 8 | np.int64(data[_AT(byte)])
                        stop |= np.int64(stops[_AT(pair)])
                    if stop:
                        break
                    place += _PASSED
                    while 0x80 <= data[_AT(place)] < 0xC0:
                        place += 1
                if place > back:
                    probe, step, back = place, _PASSED, place - 1
                    while 0x80 <= data[_AT(back)] < 0xC0:
                        back -= 1
                    lead = np.int64(data[_AT(back)])
                    last = FIRST
                    if 0x80 <= lead < END_OF_TEXT:
                        width = 2 if lead < 0xE0 else 3
                        code = lead & (0x7F >> width)
                        for byte in range(back + 1, back + width):
                            code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
                        last = np.int64(actions[_AT(code)])
                    continue
                probe = place + step
                step = min(2 * step, 64 * _PASSED)
            if lead < 0xE0:
                code, width = (lead & 0x1F) << 6 | np.int64(data[_AT(place + 1)]) & 0x3F, 2
                action = np.int64(actions[_AT(code)])
                if action < FOLLOWS:
                    last = action
                    place += 2
                    continue
            elif lead < 0xF0:
                code, width = (lead & 0xF) << 12 | (np.int64(data[_AT(place + 1)]) & 0x3F) << 6, 3
                code |= np.int64(data[_AT(place + 2)]) & 0x3F
                action = np.int64(actions[_AT(code)])
                if action < FOLLOWS:
                    last = action
                    place += 3
                    continue
            else:
                code, width = (lead & 7) << 18 | (np.int64(data[_AT(place + 1)]) & 0x3F) << 12, 4
                code |= (np.int64(data[_AT(place + 2)]) & 0x3F) << 6 | np.int64(data[_AT(place + 3)]) & 0x3F
                action = np.int64(actions[_AT(code)])
                if action < FOLLOWS:
                    last = action
                    place += 4
                    continue
            own = action & CLASS
            if action >= CHANGED or (action & SECOND and last & FIRST) or 0 < own < last & CLASS:
                break
            last = own | last & FIRST if own else action
            place += width
        if place == data.size:
            break
        kind, back, copied_to = action & KIND, place, place
        is_piece = kind in (FOLLOWS, LEFT)
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
            if actions[_AT(code)] < FOLLOWS:
                base = back if _SPACE < lead < END_OF_TEXT else back + 1
                base_size = size + base - done
                break
        if is_piece:
            size, copied_to = (base_size, base) if base < done else (size, base)
        while done < copied_to:
            out[_AT(size)] = data[_AT(done)]
            size, done = size + 1, done + 1
        if kind == CHANGED:
            base, base_size, last = place, size, action
            change = np.int64(changes[_AT(code)])
            for byte in range(change + 1, change + 1 + pool[_AT(change)]):
                out[_AT(size)] = pool[_AT(byte)]
                size += 1
        place += width
        if is_piece:
            while 0x80 <= data[_AT(place)] < END_OF_TEXT:
                lead = np.int64(data[_AT(place)])
                width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                code = lead & (0x7F >> width)
                for byte in range(place + 1, place + width):
                    code = code << 6 | np.int64(data[_AT(byte)]) & 0x3F
                kind = np.int64(actions[_AT(code)]) & KIND
                if kind in (KEPT, CHANGED):
                    break
                place += width
            for byte in range(base, place):
                pieces[_AT(piece_size)] = data[_AT(byte)]
                piece_size += 1
            pieces[_AT(piece_size)] = _NEWLINE
            places[_AT(number)] = size
            piece_size, number = piece_size + 1, number + 1
            base, base_size, last = place, size, FIRST
        done = place
    while done < place:
        out[_AT(size)] = data[_AT(done)]
        size, done = size + 1, done + 1
    return out[:size], places[:number].copy(), pieces[:piece_size].copy()


@compiled
def _with_pieces(data: NDArray[np.uint8], places: NDArray[np.int64], pieces: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Insert the pieces, each followed by a line end, at their places."""
    out = np.empty(data.size + pieces.size, np.uint8)
    size, done, piece = 0, 0, 0
    for number in range(places.size):
        while done < places[number]:
            out[_AT(size)] = data[_AT(done)]
            size, done = size + 1, done + 1
        while pieces[_AT(piece)] != _NEWLINE:
            out[_AT(size)] = pieces[_AT(piece)]
            size, piece = size + 1, piece + 1
        piece += 1
    while done < data.size:
        out[_AT(size)] = data[_AT(done)]
        size, done = size + 1, done + 1
    return out[:size]
