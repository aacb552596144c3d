"""Word n-gram hashes of texts, in array code: no Python string per word or shingle.

Words are runs of letters, digits and non-ASCII bytes, ASCII lower-cased; everything else separates. A word's hash is a
polynomial over its bytes modulo 2**64, mixed; a shingle's hash is a polynomial over those of its words, mixed. Bytes, not
strings, are what the speed comes from (research/data_peers_measured.md, section 3: Python shingles alone cap at 23 MB/s), and
documents are hashed many at a time, because most are shorter than the cost of a numpy call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

BASE = 0x9E3779B97F4A7C15
ORDER_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
BATCH_CHARS = 1 << 18
"""Arrays of one batch stay near the size of a second-level cache: 64 to 256 KiB run alike, 1 MiB a third slower."""

PIECE_BYTES = 1 << 20
"""A longer text is hashed in pieces of about this size, cut between words, so that its arrays stay small."""

LETTERS = bytes(
    ord(chr(b).lower()) + 1 if b < 128 and chr(b).isalnum() else (b + 1) % 256 if b >= 128 else 0 for b in range(256)
)
"""Byte -> its lower-cased letter plus one, 0 for what separates words. 255 is no byte of UTF-8 and would separate."""


def mix(values: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64: every input bit reaches every output bit."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True)
class HashedWords:
    """Words of a buffer, in order."""

    hashes: np.ndarray
    """uint64 [words]"""
    starts: np.ndarray
    """int64 [words]: first bytes."""
    lengths: np.ndarray
    """int64 [words]: bytes."""

    def bounds(self, texts: Sequence[bytes]) -> np.ndarray:
        """int64 [texts + 1]: the words of text i are `[bounds[i], bounds[i + 1])`, of texts joined by one separator."""
        return np.searchsorted(self.starts, np.cumsum([0, *(len(text) + 1 for text in texts)]))


def word_hashes(content: bytes, letters: bytes = LETTERS) -> HashedWords:
    """The words of a UTF-8 text; `letters` [256] says of every byte what it weighs in a word, 0 that it separates words."""
    weights = np.frombuffer(content.translate(letters), dtype=np.uint8)
    bounds = _piece_bounds(weights)
    pieces = [_piece_hashes(weights[start:end]) for start, end in pairwise(bounds)]
    if len(pieces) == 1:
        return pieces[0]
    nothing = np.zeros(0, np.int64)
    return HashedWords(
        np.concatenate([np.zeros(0, np.uint64), *(piece.hashes for piece in pieces)]),
        np.concatenate([nothing, *(piece.starts + bound for piece, bound in zip(pieces, bounds, strict=False))]),
        np.concatenate([nothing, *(piece.lengths for piece in pieces)]),
    )


def _piece_bounds(letters: np.ndarray) -> list[int]:
    """Where to cut: after the first separator at or behind every `PIECE_BYTES`; a word is never cut, however long."""
    bounds = [0]
    while bounds[-1] < letters.size:
        end = min(letters.size, bounds[-1] + PIECE_BYTES)
        while end < letters.size and (gaps := np.flatnonzero(letters[end : end + PIECE_BYTES] == 0)).size == 0:
            end = min(letters.size, end + PIECE_BYTES)
        bounds.append(end if end == letters.size else end + int(gaps[0]) + 1)
    return bounds


def _piece_hashes(letters: np.ndarray) -> HashedWords:
    """Every letter is weighed by a power of its place in the piece; a word's sum is then divided by the power of its first.

    Separators weigh nothing, so what a running sum gains from one word's last letter to the next's is the next word alone.
    """
    is_word = np.zeros(letters.size + 2, dtype=bool)
    np.not_equal(letters, 0, out=is_word[1:-1])
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]
    if not starts.size:
        return HashedWords(np.zeros(0, np.uint64), starts, lengths)
    bits = max(16, int(letters.size - 1).bit_length())
    powers, inverses = (_powers if letters.size <= 2 * PIECE_BYTES else _new_powers)(bits)
    # Sums of words are differences of running sums, modulo 2**64: half the time of a reduction for every word.
    running = np.multiply(letters, powers[: letters.size], dtype=np.uint64)
    np.cumsum(running, out=running)
    sums = running[starts + lengths - 1]
    sums[1:] -= sums[:-1].copy()
    sums *= inverses[starts]
    sums += lengths.view(np.uint64)
    return HashedWords(mix(sums), starts, lengths)


def _new_powers(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [2**bits] powers of `BASE` and of its inverse modulo 2**64 (it is odd, so it has one)."""
    return _powers_of(BASE, bits), _powers_of(pow(BASE, -1, 1 << 64), bits)


_powers = cache(_new_powers)


def _powers_of(base: int, bits: int) -> np.ndarray:
    factors = np.full(1 << bits, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def batch_shingles(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [shingles] of all texts, repeats included, and int64 [texts + 1]: text i holds `[bounds[i], bounds[i + 1])`.

    A shingle is a run of `words` words of one text; a text with fewer has none.
    """
    encoded = [text.encode() for text in texts]
    found = word_hashes(b"\n".join(encoded))
    hashes, word_bounds = found.hashes, found.bounds(encoded)
    counts = np.maximum(np.diff(word_bounds) - words + 1, 0)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    windows = max(0, hashes.size - words + 1)
    combined = hashes[:windows].copy()
    for offset in range(1, words):
        combined *= ORDER_MULTIPLIER
        combined += hashes[offset : offset + windows]
    inside = np.repeat(word_bounds[:-1] - bounds[:-1], counts) + np.arange(bounds[-1])
    return mix(combined)[inside], bounds


def shingle_sets(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
    """`batch_shingles`, those of every text sorted and each once."""
    shingles, bounds = batch_shingles(texts, words)
    return unique_in_segments(shingles, bounds)


def unique_in_segments(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort every segment in place and keep each value once; the segments' new bounds.

    `np.unique` of numpy 2.5 goes through a hash table and takes seven times as long as this sort (measured).
    """
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        values[start:end].sort()
    is_first = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    is_first[bounds[:-1][np.diff(bounds) > 0]] = True
    kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_first)])
    return values[is_first], kept_before[bounds]


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of texts of about `BATCH_CHARS` characters; a longer text is a batch alone."""
    start, size = 0, 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_CHARS:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]


def shingle_hashes(text: str, words: int) -> np.ndarray:
    """uint64, sorted and unique: the hashes of every run of `words` words; empty when the text has fewer."""
    return shingle_sets([text], words)[0]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Exact Jaccard similarity of two sorted unique arrays; 0 when both are empty."""
    both = np.concatenate([a, b])
    both.sort()
    union = both.size - int(np.count_nonzero(both[1:] == both[:-1]))
    return (both.size - union) / union if union else 0.0
