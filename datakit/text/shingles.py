"""Word n-gram hashes of texts, without a Python string per word or shingle.

Words are runs of letters and digits of any script, folded (`datakit.text.folding`), and single characters of scripts
without spaces (`datakit.text.word_kinds`). A word's hash is a mixed polynomial over its bytes modulo 2**64; a shingle's hash is
a mixed polynomial over the hashes of its words. The speed comes from one compiled loop over bytes (shingles as Python
strings reach 23 MB/s at most: docs/references.md). Documents are hashed many at a time, because most are shorter than
the cost of a call.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from datakit.text.compiled import compiled
from datakit.text.folding import END_OF_TEXT, fold_batch
from datakit.text.word_kinds import word_kinds

BASE = np.uint64(0x9E3779B97F4A7C15)
ORDER_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
BATCH_CHARS = 1 << 18
"""Characters of a batch, so that its arrays fit into about a second-level cache."""

LETTERS = np.array([ord(chr(b).lower()) + 1 if b < 128 and chr(b).isalnum() else 0 for b in range(256)], np.uint8)
"""Byte -> its lower-cased letter plus one; 0 for ASCII separators and for bytes beyond ASCII."""
NO_KINDS = np.zeros(0, np.uint8)
"""For ASCII texts, which need no table."""


def mix(values: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64: every input bit reaches every output bit."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def word_hashes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return uint64 [words] of all texts and int64 [texts + 1]: text i has the words `[bounds[i], bounds[i + 1])`."""
    data = np.frombuffer(b"\xff".join([*(text.encode() for text in texts), b""]), np.uint8)
    if all(text.isascii() for text in texts):
        return _word_hashes(data, np.flatnonzero(data == END_OF_TEXT), LETTERS, NO_KINDS)
    data = fold_batch(data)
    return _word_hashes(data, np.flatnonzero(data == END_OF_TEXT), LETTERS, word_kinds())


@compiled
def _word_hashes(
    content: np.ndarray, text_ends: np.ndarray, letters: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Hash words by their kinds (`datakit.text.word_kinds`): 0 separates, 1 is a letter, 2 is a word alone, 3 is
    ignored. One byte follows each text.
    """
    hashes, bounds = np.empty(content.size // 2 + text_ends.size + 1, np.uint64), np.zeros(text_ends.size + 1, np.int64)
    place, word = 0, 0
    for text in range(text_ends.size):
        while place < text_ends[text]:
            length, hashed, power = 0, np.uint64(0), np.uint64(1)
            while True:
                while place < text_ends[text] and letters[content[place]]:
                    hashed += np.uint64(letters[content[place]]) * power
                    power *= BASE
                    length += 1
                    place += 1
                if place == text_ends[text]:
                    break
                lead = np.int64(content[place])
                if lead < 0x80:
                    place += 1
                    break
                size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                code = lead & (0x7F >> size)
                for byte in range(place + 1, place + size):
                    code = code << 6 | np.int64(content[byte]) & 0x3F
                kind = kinds[code]
                if kind == 2 and length:
                    break  # This character begins the next word.
                for byte in range(place, place + size if kind == 1 or kind == 2 else place):
                    hashed += (np.uint64(content[byte]) + np.uint64(1)) * power
                    power *= BASE
                    length += 1
                place += size
                if kind == 0 or kind == 2:
                    break
            if length:
                hashed += np.uint64(length)
                hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # `mix`
                hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                hashes[word] = hashed ^ (hashed >> np.uint64(31))
                word += 1
        place = text_ends[text] + 1
        bounds[text + 1] = word
    return hashes[:word].copy(), bounds


def batch_shingles(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return uint64 [shingles] of all texts, repeats included, and int64 [texts + 1]: text i holds `[bounds[i],
    bounds[i + 1])`.

    A shingle is a run of `words` words of one text; a shorter text has none.
    """
    return _shingles(*word_hashes(texts), words)


@compiled
def _shingles(hashes: np.ndarray, word_bounds: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    shingles, bounds = np.empty(hashes.size, np.uint64), np.zeros(word_bounds.size, np.int64)
    count = 0
    for text in range(word_bounds.size - 1):
        for first in range(word_bounds[text], word_bounds[text + 1] - words + 1):
            combined = np.uint64(0)
            for word in range(first, first + words):
                combined = combined * ORDER_MULTIPLIER + hashes[word]
            combined = (combined ^ (combined >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # `mix`
            combined = (combined ^ (combined >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            shingles[count] = combined ^ (combined >> np.uint64(31))
            count += 1
        bounds[text + 1] = count
    return shingles[:count].copy(), bounds


@compiled
def distinct_in_segments(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct hashes of every segment in order of first occurrence, and the segments' new bounds.

    It uses a hash table for each segment, which takes a third of the time of sorting (2026-11-23).
    """
    kept, new_bounds = np.empty(values.size, np.uint64), np.zeros(bounds.size, np.int64)
    size = 2
    for segment in range(bounds.size - 1):
        while size < 2 * (bounds[segment + 1] - bounds[segment]):
            size *= 2
    slots, taken_by = np.empty(size, np.uint64), np.full(size, -1, np.int64)
    number = 0
    for segment in range(bounds.size - 1):
        bits = 1
        while 1 << bits < 2 * (bounds[segment + 1] - bounds[segment]):
            bits += 1
        for place in range(bounds[segment], bounds[segment + 1]):
            slot = np.int64(values[place] >> np.uint64(64 - bits))
            while taken_by[slot] == segment and slots[slot] != values[place]:
                slot = (slot + 1) & ((1 << bits) - 1)
            if taken_by[slot] != segment:
                slots[slot], taken_by[slot] = values[place], segment
                kept[number] = values[place]
                number += 1
        new_bounds[segment + 1] = number
    return kept[:number].copy(), new_bounds


def shingle_sets(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `batch_shingles` with the hashes of each text sorted and unique."""
    shingles, bounds = batch_shingles(texts, words)
    return unique_in_segments(shingles, bounds)


def unique_in_segments(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort every segment in place and keep each value once; return the segments' new bounds.

    `np.unique` of numpy 2.5 uses a hash table and takes seven times as long as this sort (measured).
    """
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        values[start:end].sort()
    is_first = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    is_first[bounds[:-1][np.diff(bounds) > 0]] = True
    kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_first)])
    return values[is_first], kept_before[bounds]


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into runs of about `BATCH_CHARS` characters; a longer text is a batch of its own."""
    start, size = 0, 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_CHARS:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]


def shingle_hashes(text: str, words: int) -> np.ndarray:
    """Return the hashes of every run of `words` words: uint64, sorted and unique; empty if the text has fewer words."""
    return shingle_sets([text], words)[0]


@compiled
def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Return the exact Jaccard similarity of two sorted unique arrays; 0 if both are empty."""
    at_a, at_b, both = 0, 0, 0
    while at_a < a.size and at_b < b.size:
        low, high = a[at_a], b[at_b]
        both += low == high
        at_a += low <= high
        at_b += high <= low
    union = a.size + b.size - both
    return both / union if union else 0.0
