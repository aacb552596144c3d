"""What each character is to a word: a part of one, a word by itself, a separator, or ignored.

Letters, digits and combining marks of any script are part of a word. In scripts without spaces between words (Han,
kana, Thai, Lao, Burmese, Khmer) each character is a word, because finding words needs a dictionary. Everything else
separates: quotes and dashes (ASCII or typographic), non-breaking spaces, East Asian punctuation. Format characters
(soft hyphens, zero-width spaces, joiners, direction marks, byte order marks) are ignored. Texts are folded first
(`datakit.text.folding`), which removes them; that module says how the definition of a word is versioned.

Categories are those of this Python's Unicode version (15.0 in Python 3.12; manifests record it). Unassigned and
private-use code points count as letters.
"""

import unicodedata
from functools import lru_cache

import numpy as np

SEPARATES, LETTER, ALONE, NOTHING = 0, 1, 2, 3
TABLE_SIZE = 0x110000
WITHOUT_SPACES = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Burmese
    range(0xA9E0, 0xAA00),
    range(0xAA60, 0xAA80),
    range(0x1780, 0x1800),  # Khmer
    range(0x3000, 0x3100),  # kana, and marks of Han
    range(0x31F0, 0x3200),
    range(0x3400, 0x4DC0),  # Han
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0xFF66, 0xFFA0),  # half-width kana
    range(0x1AFF0, 0x1B170),
    range(0x20000, 0x40000),
)
_LOOKED_UP = (range(0x20000), range(0xE0000, 0xE0200))
"""Planes with letters and other characters: 0, 1, and the tags and variants of plane 14. Planes 2 and 3 are Han."""
_BY_CATEGORY = {
    **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc"), SEPARATES),
    "Cf": NOTHING,
}
"""All other code points are letters."""


def kind(character: str) -> int:
    """Return `SEPARATES`, `LETTER`, `ALONE` or `NOTHING`."""
    sort = _BY_CATEGORY.get(unicodedata.category(character), LETTER)
    return ALONE if sort == LETTER and any(ord(character) in script for script in WITHOUT_SPACES) else sort


@lru_cache(maxsize=1)
def word_kinds() -> np.ndarray:
    """Return uint8 [code points], the `kind` of each. It takes 20 ms once in a process that meets a character beyond
    ASCII.
    """
    table = np.full(TABLE_SIZE, LETTER, np.uint8)
    for block in _LOOKED_UP:
        categories = map(unicodedata.category, map(chr, block))
        table[block.start : block.stop] = [_BY_CATEGORY.get(category, LETTER) for category in categories]
    for script in WITHOUT_SPACES:
        here = table[script.start : script.stop]
        here[here == LETTER] = ALONE
    return table


def split_words(text: str) -> list[str]:
    """Return the words of a folded text in order: those that `datakit.text.shingles.word_hashes` hashes, one hash each."""
    words, letters = [], ""
    for character in text:
        its_kind = kind(character)
        if its_kind in (SEPARATES, ALONE) and letters:
            words.append(letters)
            letters = ""
        if its_kind == ALONE:
            words.append(character)
        elif its_kind == LETTER:
            letters += character
    return [*words, letters] if letters else words
