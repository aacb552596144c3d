"""One form for every way to write the same letters: the step before words are split, hashed or matched.

Near-duplicates and contamination both fold, so a document in another case, in decomposed or full-width letters, or with
invisible characters between its letters has the same words. Only white-space tokens with characters beyond ASCII are
folded as characters; lower-casing ASCII is a byte operation of the caller.
"""

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

from datakit.text.compiled import compiled

FOLDING_VERSION = "folding/1"
END_OF_TEXT = 0xFF
"""A byte that never occurs in UTF-8; it separates the texts of a batch."""
_SPACE, _NEWLINE = b" \n"
_HIGH_BITS = np.uint64(0x8080808080808080)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Format characters (category Cf) and the default-ignorable code points of the Unicode character database: soft hyphens,
zero-width spaces and joiners, direction marks, byte order marks, variation selectors, fillers.
"""


def fold(text: str) -> str:
    """Return the text without invisible characters, in NFKC, case folded, and in NFKC again.

    Folding the case of a composed letter can leave it decomposed, so the second NFKC is needed (Unicode 15.0, section
    3.13, NFKC_Casefold). The Turkish dotted capital I folds to "i" and a dot, as Unicode says for texts of unknown
    language.

    >>> fold("STRASSE") == fold("straße"), fold("Ｆｕｌｌ"), fold("soft\\u00adhyphen")
    (True, 'full', 'softhyphen')
    """
    composed = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    return unicodedata.normalize("NFKC", composed.casefold())


def wide_tokens(data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Return where white-space tokens with bytes beyond ASCII begin and end in UTF-8 texts that each end with
    END_OF_TEXT, and the tokens, each followed by a line end.
    """
    starts, ends, tokens = _wide_tokens(data)
    return starts, ends, tokens.tobytes().decode()


@compiled
def _wide_tokens(data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    most = data.size // 2 + 1
    starts, ends, tokens = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(data.size + 1, np.uint8)
    eights = data[: data.size // 8 * 8].view(np.uint64)
    number, size, place = 0, 0, 0
    while place < data.size:
        if place % 8 == 0 and place // 8 < eights.size and not eights[place // 8] & _HIGH_BITS:
            place += 8
            continue
        if data[place] < 0x80 or data[place] == END_OF_TEXT:
            place += 1
            continue
        start, end = place, place + 1
        while start > 0 and _SPACE < data[start - 1] < END_OF_TEXT:
            start -= 1
        while _SPACE < data[end] < END_OF_TEXT:
            end += 1
        tokens[size : size + end - start] = data[start:end]
        size += end - start + 1
        tokens[size - 1] = _NEWLINE
        starts[number], ends[number] = start, end
        number += 1
        place = end
    return starts[:number].copy(), ends[:number].copy(), tokens[:size].copy()


@compiled
def with_tokens(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], tokens: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the data with the tokens of these spans replaced by others, each followed by a line end."""
    out = np.empty(data.size + tokens.size, np.uint8)
    size, done, token = 0, 0, 0
    for number in range(starts.size):
        out[size : size + starts[number] - done] = data[done : starts[number]]
        size += starts[number] - done
        done = ends[number]
        while tokens[token] != _NEWLINE:
            out[size] = tokens[token]
            size, token = size + 1, token + 1
        token += 1
    out[size : size + data.size - done] = data[done:]
    return out[: size + data.size - done].copy()
