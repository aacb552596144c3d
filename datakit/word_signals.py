"""Signals of words that Gopher's quality rules judge by. Words are runs without white space; papers do not say.

Words of a batch of documents are places in one buffer of bytes, hashed as `datakit.shingles` hashes its own: no string is made
of a word (14 ms a MB for all that is asked of words, 43 as a column of strings; 2026-11-22).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from datakit.shingles import HashedWords, word_hashes

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's list (Rae et al. 2021, section A.1.1)."""

TEXT = pl.col("text")

SOLID = bytes(0 if b in b"\t\n\v\f\r \xff" else b + 1 for b in range(256))
"""Byte -> what it weighs in a word, 0 for ASCII white space. 255 is no byte of UTF-8."""

WIDE_WHITE_SPACE = "[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""The rest of Unicode's property White_Space."""

LETTERS = bytes(chr(b).isalpha() and b < 128 for b in range(256))
CONTINUATION = -64
"""As int8, bytes of UTF-8 below it continue a character, bytes from it to -1 begin one."""


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
    encoded = [text.encode() for text in texts.str.replace_all(WIDE_WHITE_SPACE, " ").to_list()]
    content = b"\n".join(encoded)
    found = word_hashes(content, SOLID)
    has_letter = _begin_or_hold(np.frombuffer(content.translate(LETTERS), bool), found)
    chars, wide = found.lengths.copy(), _wide_words(content, found)
    starts, ends = found.starts[wide], found.starts[wide] + found.lengths[wide]
    continued = np.flatnonzero(np.frombuffer(content, np.int8) < CONTINUATION)
    chars[wide] -= np.searchsorted(continued, ends) - np.searchsorted(continued, starts)
    unknown = ~has_letter[wide]  # few in most texts, so these alone are looked at as characters
    spans = zip(starts[unknown].tolist(), ends[unknown].tolist(), strict=True)
    words = pl.Series([content[low:high].decode() for low, high in spans], dtype=pl.String)
    has_letter[wide[unknown]] = words.str.contains(r"\p{L}").to_numpy()
    return Words(found.bounds(encoded), chars, found.hashes, has_letter)


def _begin_or_hold(is_letter: np.ndarray, words: HashedWords) -> np.ndarray:
    """bool [words]: whether a word has a marked byte. Most begin with one, and a look at all bytes of all words is dear."""
    found = is_letter[words.starts]
    others = np.flatnonzero(~found)
    if others.size:
        spans = np.stack([words.starts[others], words.starts[others] + words.lengths[others]], axis=1)
        found[others] = np.logical_or.reduceat(np.append(is_letter, False), spans.ravel())[::2]
    return found


def _wide_words(content: bytes, words: HashedWords) -> np.ndarray:
    """int64, ascending: the words that hold a byte of a character beyond ASCII, seen from where such bytes begin."""
    is_wide = np.frombuffer(content, np.int8) < 0
    begins = np.flatnonzero(is_wide[1:] > is_wide[:-1]) + 1
    if content[:1] >= b"\x80":
        begins = np.concatenate([np.zeros(1, np.int64), begins])
    word = np.searchsorted(words.starts, begins, side="right") - 1
    return word[np.concatenate([np.ones(min(1, word.size), bool), word[1:] != word[:-1]])]


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
