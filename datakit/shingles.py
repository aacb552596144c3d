"""Word n-gram hashes of texts, in array code: no Python string per word or shingle.

Words are runs of letters, digits and non-ASCII bytes, ASCII lower-cased; everything else separates. A word's hash is a
polynomial over its bytes modulo 2**64, a shingle's hash mixes those of its words in order. Bytes, not strings, are what the
speed comes from (research/data_peers_measured.md, section 3: Python shingles alone cap at 23 MB/s), and documents are hashed
many at a time, because most are shorter than the cost of a numpy call.
"""

from collections.abc import Iterator, Sequence

import numpy as np

BASE = np.uint64(0x9E3779B97F4A7C15)
ORDER_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
BATCH_CHARS = 1 << 18
"""Arrays of one batch stay near the size of a second-level cache: 64 to 256 KiB run alike, 1 MiB a third slower."""

_IS_WORD_BYTE = np.array([chr(b).isalnum() if b < 128 else True for b in range(256)])
_LOWER = np.array([ord(chr(b).lower()) if b < 128 else b for b in range(256)], dtype=np.uint8)


def mix(values: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64: every input bit reaches every output bit."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def word_hashes(content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [words] hashes and int64 [words] first bytes of the words of a UTF-8 buffer, in order."""
    is_word = np.zeros(content.size + 2, dtype=bool)
    is_word[1:-1] = _IS_WORD_BYTE[content]
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]
    if not starts.size:
        return np.zeros(0, np.uint64), starts
    letters = _LOWER[content[is_word[1:-1]]].astype(np.uint64) + np.uint64(1)
    firsts = np.cumsum(lengths) - lengths
    powers = np.concatenate([np.ones(1, np.uint64), np.cumprod(np.full(int(lengths.max()) - 1, BASE))])
    letters *= powers[np.arange(letters.size) - np.repeat(firsts, lengths)]
    return mix(np.add.reduceat(letters, firsts) + lengths.astype(np.uint64)), starts


def batch_shingles(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [shingles] of all texts, repeats included, and int64 [texts + 1]: text i holds `[bounds[i], bounds[i + 1])`.

    A shingle is a run of `words` words of one text; a text with fewer has none.
    """
    encoded = [text.encode() for text in texts]
    hashes, starts = word_hashes(np.frombuffer(b"\n".join(encoded), dtype=np.uint8))
    first_bytes = np.cumsum([0, *(len(content) + 1 for content in encoded)])
    word_bounds = np.searchsorted(starts, first_bytes)
    counts = np.maximum(np.diff(word_bounds) - words + 1, 0)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    windows = max(0, hashes.size - words + 1)
    combined = np.zeros(windows, np.uint64)
    for offset in range(words):
        combined = mix(combined * ORDER_MULTIPLIER + hashes[offset : offset + windows])
    inside = np.repeat(word_bounds[:-1] - bounds[:-1], counts) + np.arange(bounds[-1])
    return combined[inside], bounds


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
    return np.unique(batch_shingles([text], words)[0])


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Exact Jaccard similarity of two sorted unique arrays; 0 when both are empty."""
    shared = np.intersect1d(a, b, assume_unique=True).size
    union = a.size + b.size - shared
    return shared / union if union else 0.0
