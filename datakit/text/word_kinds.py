"""What each character is to a word: part of one, a word by itself, a separator, or nothing at all.

Letters, digits and combining marks of any script are part of a word. Scripts that put no spaces between words (Han, kana, Thai,
Lao, Burmese, Khmer) have no words to be had without a dictionary, so each of their characters is one. Everything else
separates: quotes and dashes whether they are ASCII or typographic, spaces that do not break, punctuation of East Asia. Format
characters (soft hyphens, joiners, marks of direction, byte order marks) are not there, but for the zero-width space.

By Unicode's categories as this Python has them (15.0 of 3.12; manifests record it). What a version does not assign
is taken for a letter, private use too.
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
"""Where letters stand beside what is none: planes 0 and 1, and plane 14's tags. Planes 2 and 3 are Han."""
_BY_CATEGORY = {
    **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc"), SEPARATES),
    "Cf": NOTHING,
}
"""The others are letters."""
_ZERO_WIDTH_SPACE = "\u200b"


def kind(character: str) -> int:
    """`SEPARATES`, `LETTER`, `ALONE` or `NOTHING`."""
    sort = SEPARATES if character == _ZERO_WIDTH_SPACE else _BY_CATEGORY.get(unicodedata.category(character), LETTER)
    return ALONE if sort == LETTER and any(ord(character) in script for script in WITHOUT_SPACES) else sort


@lru_cache(maxsize=1)
def word_kinds() -> np.ndarray:
    """uint8 [code points]: `kind` of each; 20 ms once a process that meets a character beyond ASCII."""
    table = np.full(TABLE_SIZE, LETTER, np.uint8)
    for block in _LOOKED_UP:
        found = map(unicodedata.category, map(chr, block))
        table[block.start : block.stop] = [_BY_CATEGORY.get(category, LETTER) for category in found]
    table[ord(_ZERO_WIDTH_SPACE)] = SEPARATES
    for script in WITHOUT_SPACES:
        here = table[script.start : script.stop]
        here[here == LETTER] = ALONE
    return table


def split_words(text: str) -> list[str]:
    """The words of a text as they stand in it: what `datakit.text.shingles.word_hashes` hashes, one hash each, in order."""
    words, letters = [], ""
    for character in text:
        sort = kind(character)
        if sort in (SEPARATES, ALONE) and letters:
            words.append(letters)
            letters = ""
        if sort == ALONE:
            words.append(character)
        elif sort == LETTER:
            letters += character
    return [*words, letters] if letters else words
