"""The signal of C4's list of bad words: whether a text holds one of them between characters that are of no word.

The list is the one that C4 names (data/word_lists/README.md: whose it is, and what is known against it). C4 applies it after
cutting its lines out; here lines are counted, not cut, so the whole text is looked at.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

import polars as pl

WORDS_FILE = Path(__file__).resolve().parent.parent / "data" / "word_lists" / "ldnoobw_en.txt"
WORDS_SHA256 = "af851ecef1d5f212caba17339b12ac39cc2fef7d78c74876f67237644fcee8bd"


@cache
def bad_words_pattern() -> str:
    """Of c4_utils.get_badwords_filter_fn, over lower-cased text. Raises ValueError for another list than was declared."""
    content = WORDS_FILE.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != WORDS_SHA256:
        raise ValueError(
            f"{WORDS_FILE} has sha256 {found}, {WORDS_SHA256} is declared; restore it, or declare it and bump stages"
        )
    words = "|".join(re.escape(word) for word in content.decode().splitlines())
    return rf"(?:\W|^)(?:{words})(?:\W|$)"


def bad_words(texts: pl.Series) -> pl.Series:
    """float64: 1 where a text holds a word of the list."""
    return texts.str.to_lowercase().str.contains(bad_words_pattern()).cast(pl.Float64).alias("bad_words")
