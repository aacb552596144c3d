"""Signals of words that Gopher's quality rules judge by. Words are runs without white space; papers do not say."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from datakit.code_points import CodePoints, having
from datakit.compiled import compiled

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's list (Rae et al. 2021, section A.1.1): found in any case, between characters that are of no word. At most four
letters, and none that a letter beyond ASCII folds to (k and s have such), which the search for them goes by."""

HASH_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Words:
    """The words of a batch of texts, in order: flat arrays [words]."""

    bounds: np.ndarray
    """int64 [texts + 1]: text i has the words `[bounds[i], bounds[i + 1])`."""
    chars: np.ndarray
    """int64"""
    hashes: np.ndarray
    """uint64, equal for equal words (and not else, but for collisions of 64 bits)."""
    lettered: np.ndarray
    """int64 [texts]: words with a letter of any script."""


def words_of(texts: CodePoints) -> Words:
    """The words of each text."""
    return Words(*_words(texts.points, texts.bounds, having(r"\s"), having(r"\p{L}")))


@compiled
def _words(
    points: np.ndarray, bounds: np.ndarray, is_space: np.ndarray, is_letter: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    most = points.size // 2 + 1
    chars, hashes = np.empty(most, np.int64), np.empty(most, np.uint64)
    word_bounds, lettered = np.zeros(bounds.size, np.int64), np.zeros(bounds.size - 1, np.int64)
    word = 0
    for text in range(bounds.size - 1):
        length, hashed, has_letter = 0, np.uint64(1), False  # 1: a NUL in front counts
        for point in points[bounds[text] : bounds[text + 1]]:
            if not is_space[point]:
                hashed = hashed * HASH_BASE + np.uint64(point)
                has_letter |= is_letter[point]
                length += 1
            elif length:
                chars[word], hashes[word] = length, hashed
                lettered[text] += has_letter
                word += 1
                length, hashed, has_letter = 0, np.uint64(1), False
        word_bounds[text + 1] = word
    return word_bounds, chars[:word].copy(), hashes[:word].copy(), lettered


def word_signals(texts: CodePoints, words: Words) -> dict[str, np.ndarray]:
    """float64 [texts] by name."""
    count = np.diff(words.bounds).astype(np.float64)
    chars = np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(words.chars)])[words.bounds])
    stop_words = _stop_words(texts.points, texts.bounds, having(r"\w"), _packed(STOP_WORDS))
    own = [texts.text[start : end - 1] for start, end in pairwise(texts.bounds.tolist())]
    signs = np.array([text.count("#") for text in own], np.float64)
    ellipses = np.array([text.count("...") + text.count("…") for text in own], np.float64)
    per_word = 1.0 / np.maximum(count, 1)
    return {
        "num_words": count,
        "mean_word_chars": chars * per_word,
        "hash_word_ratio": signs * per_word,
        "ellipsis_word_ratio": ellipses * per_word,
        "alpha_word_frac": words.lettered * per_word,
        "stop_words": stop_words,
    }


def _packed(words: tuple[str, ...]) -> np.ndarray:
    """uint32 [words]: the bytes of a word of up to four ASCII letters as one number."""
    return np.array([int.from_bytes(word.encode()) for word in words], np.uint32)


@compiled
def _stop_words(points: np.ndarray, bounds: np.ndarray, of_word: np.ndarray, packed_words: np.ndarray) -> np.ndarray:
    """float64 [texts]: how many of the stop words a text holds. A text is read until it has shown them all."""
    counts = np.zeros(bounds.size - 1)
    for text in range(bounds.size - 1):
        missing = packed_words.copy()
        num_missing, letters, packed = missing.size, 0, np.uint64(0)
        for point in points[bounds[text] : bounds[text + 1]]:
            if of_word[point]:
                packed = (packed << np.uint64(8)) | (np.uint64(point | 32) if point < 128 else np.uint64(255))
                letters += 1
                continue
            if 2 <= letters <= 4:
                for number in range(num_missing):
                    if missing[number] == packed:
                        num_missing -= 1
                        missing[number] = missing[num_missing]
                        break
                if not num_missing:
                    break
            packed, letters = np.uint64(0), 0
        counts[text] = packed_words.size - num_missing
    return counts
