"""Signals of words that Gopher's quality rules use. Words are runs without white space; the paper does not define them."""

from dataclasses import dataclass

import numpy as np

from datakit.text.code_points import CodePoints, having
from datakit.text.compiled import compiled

HASH, DOT, ELLIPSIS = ord("#"), ord("."), ord("…")
HASH_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Words:
    """The words of a batch of texts, in order: flat arrays [words]."""

    bounds: np.ndarray
    """int64 [texts + 1]: text i has the words `[bounds[i], bounds[i + 1])`."""
    chars: np.ndarray
    """int64"""
    hashes: np.ndarray
    """uint64, equal for equal words (and for others only in a collision of 64 bits)."""
    lettered: np.ndarray
    """int64 [texts]: words with a letter."""

    @property
    def text_chars(self) -> np.ndarray:
        """Return int64 [texts]: characters of all words of a text."""
        return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(self.chars)])[self.bounds])


def words_of(texts: CodePoints, letter: str = r"\p{L}") -> Words:
    """Return the words of each text; `letter` is a pattern of one character, by default of any script."""
    return Words(*_words(texts.points, texts.bounds, having(r"\s"), having(letter)))


@compiled
def _words(
    points: np.ndarray, bounds: np.ndarray, is_space: np.ndarray, is_letter: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    most = points.size // 2 + 1
    chars, hashes = np.empty(most, np.int64), np.empty(most, np.uint64)
    word_bounds, lettered = np.zeros(bounds.size, np.int64), np.zeros(bounds.size - 1, np.int64)
    word = 0
    for text in range(bounds.size - 1):
        length, hashed, has_letter = 0, np.uint64(1), False  # From 1, because a leading NUL counts.
        for point in points[bounds[text] : bounds[text + 1]]:
            space = is_space[point]  # No branch: the processor cannot predict where words end.
            chars[np.uint64(word)], hashes[np.uint64(word)] = length, hashed
            ends = space & (length > 0)
            word += ends
            lettered[np.uint64(text)] += ends & has_letter
            hashed = np.uint64(1) if space else hashed * HASH_BASE + np.uint64(point)
            length = 0 if space else length + 1
            has_letter = (has_letter | is_letter[point]) & (not space)
        word_bounds[text + 1] = word
    return word_bounds, chars[:word], hashes[:word], lettered


def word_signals(texts: CodePoints, words: Words) -> dict[str, np.ndarray]:
    """Return float64 [texts] by name."""
    count = np.diff(words.bounds).astype(np.float64)
    hashes, ellipses = sign_counts(texts)
    per_word = 1.0 / np.maximum(count, 1)
    return {
        "num_words": count,
        "mean_word_chars": words.text_chars * per_word,
        "hash_word_ratio": hashes * per_word,
        "ellipsis_word_ratio": ellipses * per_word,
        "alpha_word_frac": words.lettered * per_word,
    }


def sign_counts(texts: CodePoints) -> np.ndarray:
    """Return float64 [2, texts]: hash signs, and ellipses (three dots are one)."""
    return _signs(texts.points, texts.bounds)


@compiled
def _signs(points: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    counts = np.zeros((2, bounds.size - 1))
    for text in range(bounds.size - 1):
        low, high = bounds[text], bounds[text + 1]  # The last character is a line feed.
        hashes, ellipses, triples = np.uint32(0), np.uint32(0), np.uint32(0)
        for place in range(low, high):
            hashes += np.uint32(points[np.uint64(place)] == HASH)
            ellipses += np.uint32(points[np.uint64(place)] == ELLIPSIS)
        for place in range(low, high - 2):
            two = (points[np.uint64(place)] ^ DOT) | (points[np.uint64(place + 1)] ^ DOT)
            triples += np.uint32((two | (points[np.uint64(place + 2)] ^ DOT)) == 0)
        counts[0, text], counts[1, text], dots = hashes, ellipses, 0
        for place in range(low, high if triples else low):
            dots = dots + 1 if points[np.uint64(place)] == DOT else 0
            if dots == 3:
                counts[1, text] += 1
                dots = 0
    return counts
