"""Word n-gram hashes of a text, in array code: no Python string per word or shingle.

Words are runs of letters, digits and non-ASCII bytes, lower-cased. A word's hash is a polynomial over its bytes, read off a
prefix sum modulo 2**64 (the base is odd, so it can be divided out); a shingle's hash mixes those of its words. Bytes, not
strings, are what the speed comes from (research/data_peers_measured.md, section 3: Python shingles alone cap at 23 MB/s).
"""

import numpy as np

BASE = np.uint64(0x9E3779B97F4A7C15 | 1)
BASE_INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))
ORDER_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)

_IS_WORD_BYTE = np.array([chr(b).isalnum() if b < 128 else True for b in range(256)])
_LOWER = np.array([ord(chr(b).lower()) if b < 128 else b for b in range(256)], dtype=np.uint8)


def mix(values: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64: every input bit reaches every output bit."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def word_hashes(text: str) -> np.ndarray:
    """uint64 [words]: the hash of every word in order."""
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    if not content.size:
        return np.zeros(0, np.uint64)
    is_word = np.concatenate([[False], _IS_WORD_BYTE[content], [False]])
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, ends = edges[0::2], edges[1::2]
    if not starts.size:
        return np.zeros(0, np.uint64)
    powers = np.cumprod(np.full(content.size, BASE))
    prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum((_LOWER[content].astype(np.uint64) + np.uint64(1)) * powers)])
    shift = np.cumprod(np.full(content.size, BASE_INVERSE))
    lengths = (ends - starts).astype(np.uint64)
    return mix((prefix[ends] - prefix[starts]) * shift[starts] + lengths)


def shingle_hashes(text: str, words: int) -> np.ndarray:
    """uint64, sorted and unique: the hashes of every run of `words` words; empty when the text has fewer."""
    hashes = word_hashes(text)
    if hashes.size < words:
        return np.zeros(0, np.uint64)
    count = hashes.size - words + 1
    combined = np.zeros(count, np.uint64)
    for offset in range(words):
        combined = mix(combined * ORDER_MULTIPLIER + hashes[offset : offset + count])
    return np.unique(combined)


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Exact Jaccard similarity of two sorted unique arrays; 0 when both are empty."""
    shared = np.intersect1d(a, b, assume_unique=True).size
    union = a.size + b.size - shared
    return shared / union if union else 0.0
