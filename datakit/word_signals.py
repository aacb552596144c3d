"""Signals of words that Gopher's quality rules judge by. Words are runs without white space; papers do not say.

Words of a batch of documents are places in one buffer of bytes, hashed as `datakit.shingles` hashes its own: no string is made
of a word (14 ms a MB for all that is asked of words, 43 as a column of strings; 2026-11-22).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from datakit.shingles import word_hashes

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's list (Rae et al. 2021, section A.1.1)."""

TEXT = pl.col("text")

SOLID = bytes(0 if b in b"\t\n\v\f\r \xff" else b + 1 for b in range(256))
"""Byte -> what it weighs in a word, 0 for ASCII white space. 255 is no byte of UTF-8."""

WIDE_WHITE_SPACE = tuple(
    chr(point).encode() for point in (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
)
"""The rest of Unicode's property White_Space, in UTF-8."""

LETTER, WIDE = 1, 2
KINDS = bytes(WIDE if b >= 128 else LETTER if chr(b).isalpha() else 0 for b in range(256))


@dataclass(frozen=True)
class Words:
    """The words of a batch of texts, in order: flat arrays [words]."""

    bounds: np.ndarray
    """int64 [texts + 1]: text i has the words `[bounds[i], bounds[i + 1])`."""
    chars: np.ndarray
    """int64"""
    hashes: np.ndarray
    """uint64, equal for equal words (and not else, but for collisions of 64 bits)."""
    has_letter: np.ndarray
    """bool: whether a character of the word is a letter of any script."""

    @property
    def doc(self) -> np.ndarray:
        """int64 [words]: the number of the text."""
        return np.repeat(np.arange(self.bounds.size - 1), np.diff(self.bounds))


def words_of(texts: pl.Series) -> Words:
    """The words of each text."""
    encoded = [text.encode() for text in texts.to_list()]
    encoded = [text if text.isascii() else _narrowed(text) for text in encoded]
    content = b"\n".join(encoded)
    found = word_hashes(content, SOLID)
    kinds = np.frombuffer(content.translate(KINDS), np.uint8)
    kind = np.bitwise_or.reduceat(kinds, found.starts) if found.starts.size else np.zeros(0, np.uint8)
    chars, has_letter = found.lengths.copy(), (kind & LETTER).astype(bool)
    wide = np.flatnonzero(kind & WIDE)  # few in most texts, so these alone are looked at as characters
    starts = found.starts[wide]
    spans = zip(starts.tolist(), (starts + found.lengths[wide]).tolist(), strict=True)
    words = pl.Series([content[low:high].decode() for low, high in spans], dtype=pl.String)
    chars[wide] = words.str.len_chars()
    has_letter[wide] |= words.str.contains(r"\p{L}").to_numpy()
    return Words(found.bounds(encoded), chars, found.hashes, has_letter)


def _narrowed(text: bytes) -> bytes:
    """The text with white space beyond ASCII as spaces: no word changes. A search of each is a fifth of a pattern for all."""
    for space in WIDE_WHITE_SPACE:
        text = text.replace(space, b" ")
    return text


def word_signals(texts: pl.Series, words: Words) -> pl.DataFrame:
    """float64 columns, a row a text."""
    count = np.diff(words.bounds).astype(np.float64)
    chars, alpha = (np.bincount(words.doc, weights, texts.len()) for weights in (words.chars, words.has_letter))
    per_word = 1.0 / np.maximum(count, 1)
    stop_words = pl.sum_horizontal(TEXT.str.contains(rf"(?i)\b{word}\b") for word in STOP_WORDS)
    counted = pl.DataFrame({"text": texts}).select(
        hashes=_occurrences("#"), ellipses=_occurrences("...") + _occurrences("…"), stop_words=stop_words
    )
    return pl.DataFrame(
        {
            "num_words": count,
            "mean_word_chars": chars * per_word,
            "hash_word_ratio": counted["hashes"].to_numpy() * per_word,
            "ellipsis_word_ratio": counted["ellipses"].to_numpy() * per_word,
            "alpha_word_frac": alpha * per_word,
            "stop_words": counted["stop_words"].cast(pl.Float64),
        }
    )


def _occurrences(literal: str) -> pl.Expr:
    """How often a text holds a string. Looking for the first costs a twentieth of counting, and most texts have none."""
    holding = pl.when(TEXT.str.contains(literal, literal=True)).then(TEXT).otherwise(pl.lit(""))
    return holding.str.count_matches(literal, literal=True).cast(pl.Float64)
