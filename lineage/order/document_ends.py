"""Where the documents of a token cache end, read from the memory maps of its shards. No array of all documents is made.

A shard stores its ends in its own tokens; here they are given in tokens of the whole cache. 10^8 documents take 800 MB
on disk, and in memory only what somebody reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np


@dataclass(frozen=True)
class DocumentEnds:
    """Rising int64 [documents], in the shards' order."""

    shards: Sequence[np.ndarray]
    """Ends of each shard's documents in its own tokens."""
    bases: np.ndarray
    """int64 [shards + 1]: first token of each shard, and the end of the last."""
    firsts: np.ndarray
    """int64 [shards + 1]: first document of each shard, and the number of all."""

    @staticmethod
    def of(shards: Sequence[np.ndarray], bases: Sequence[int]) -> "DocumentEnds":
        """Build it from each shard's ends and its first token (and one more: the end of the last)."""
        return DocumentEnds(shards, np.array(bases, np.int64), np.array([0, *accumulate(map(len, shards))], np.int64))

    @property
    def size(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, window: slice) -> np.ndarray:
        """Return the ends of a range of documents, `[first:stop]`."""
        first, stop, step = window.indices(self.size)
        if step != 1:
            raise ValueError(f"a window of documents has step {step}; 1 is allowed, take() gives single ones")
        collected = [np.zeros(0, np.int64)]
        begin = int(np.searchsorted(self.firsts, first, side="right")) - 1
        for shard in range(begin, int(np.searchsorted(self.firsts[:-1], stop))):
            low = int(self.firsts[shard])
            collected.append(self.shards[shard][max(0, first - low) : max(0, stop - low)] + self.bases[shard])
        return np.concatenate(collected)

    def take(self, documents: np.ndarray) -> np.ndarray:
        """Return the end of each document."""
        ends = np.empty(len(documents), np.int64)
        for number, here in _by_shard(documents, self.firsts):
            ends[here] = self.shards[number][documents[here] - self.firsts[number]] + self.bases[number]
        return ends

    def at_or_before(self, tokens: np.ndarray) -> np.ndarray:
        """Return how many documents end at or before each token, which is the number of the document that holds it."""
        collected = np.zeros(len(tokens), np.int64)
        for number, here in _by_shard(tokens, self.bases):
            within = np.searchsorted(self.shards[number], tokens[here] - self.bases[number], side="right")
            collected[here] = within + self.firsts[number]
        return collected


def _by_shard(values: np.ndarray, firsts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (shard, where in `values` it has some), ascending there, because searching for rising values is fast.
    Values before the first shard or after the last are assigned to these.
    """
    order = np.argsort(values)
    edges = np.searchsorted(values[order], firsts[1:-1])
    for number, (low, high) in enumerate(pairwise([0, *edges.tolist(), len(order)][: len(firsts)])):
        if low < high:
            yield number, order[low:high]
