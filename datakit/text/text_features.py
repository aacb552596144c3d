"""Features of a text for a scorer: its distinct words and word pairs, hashed, in windows of equal size.

A text is cut into windows, so that a speech of 50,000 characters and a lead of 500 are judged on the same scale. A long
text gives evenly spaced windows; a rest that is too short is left out. Each window's features have length one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import xxhash

from datakit.text.folding import fold
from datakit.text.shingles import batch_shingles
from datakit.text.word_kinds import split_words

type WindowLogits = Callable[[Sequence[str]], np.ndarray]
"""Windows of texts -> float64 [windows], the logit of each window: the interface of a scorer's back-end."""

PROBE = "The quick brown fox jumps over the lazy dog; 1 of 2 tests, in plain words: “naïve”—再."


@dataclass(frozen=True)
class FeatureConfig:
    """Size of windows, and hashing."""

    bits: int = 18
    window_chars: int = 2_000
    max_windows: int = 16

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 24:
            raise ValueError(f"features.bits is {self.bits}; it must be from 8 to 24")
        if self.window_chars < 100:
            raise ValueError(f"features.window_chars is {self.window_chars}; it must be at least 100")
        if self.max_windows < 1:
            raise ValueError(f"features.max_windows is {self.max_windows}; it must be at least 1")


def windows(text: str, config: FeatureConfig) -> list[str]:
    """Cut a text into windows, at least one. A rest below a tenth of a window gives no window of its own."""
    size = config.window_chars
    count = max(1, (len(text) + size * 9 // 10) // size)
    taken = min(count, config.max_windows)
    return [text[i * size : (i + 1) * size] for i in (number * count // taken for number in range(taken))]


def hashed(texts: Sequence[str], bits: int) -> scipy.sparse.csr_matrix:
    """Return float32 [texts, 2**bits]: a row has the same value in the bucket of every distinct word and word pair, and
    length 1.
    """
    rows, buckets = [], []
    for words in (1, 2):
        hashes, bounds = batch_shingles(texts, words)
        rows.append(np.repeat(np.arange(len(texts)), np.diff(bounds)))
        buckets.append((hashes >> np.uint64(64 - bits)).astype(np.int64))
    pairs = np.unique(np.concatenate(rows) << bits | np.concatenate(buckets))
    starts = np.searchsorted(pairs, np.arange(len(texts) + 1) << bits)
    counts = np.diff(starts)
    values = np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
    return scipy.sparse.csr_matrix((values, pairs & ((1 << bits) - 1), starts), shape=(len(texts), 1 << bits))


def named(text: str, wanted: np.ndarray, bits: int) -> Iterator[tuple[int, str]]:
    """Yield (bucket, words) of every word and word pair of a text whose bucket is wanted, in order."""
    words = split_words(fold(text))
    for count in (1, 2):
        hashes, _ = batch_shingles([text], count)
        buckets = (hashes >> np.uint64(64 - bits)).astype(np.int64)
        for place in np.flatnonzero(np.isin(buckets, wanted)):
            yield int(buckets[place]), " ".join(words[place : place + count])


def probe_digest(bits: int) -> str:
    """Return a digest of the hashing of one sentence. Weights learned under another hashing are invalid."""
    return xxhash.xxh3_64_hexdigest(np.sort(hashed([PROBE], bits).indices).astype(np.int64).tobytes())
