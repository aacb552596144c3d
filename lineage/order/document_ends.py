"""Where the documents of a token cache end, over the memory maps of its shards: nothing as long as the documents is made.

A shard's ends are in its own tokens; asked here they are in tokens of the whole cache. 10^8 documents are 800 MB on disk, and
in memory what somebody reads of them.
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
        """From each shard's ends and its first token (one more: the end of the last)."""
        return DocumentEnds(shards, np.array(bases, np.int64), np.array([0, *accumulate(map(len, shards))], np.int64))

    @property
    def size(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, window: slice) -> np.ndarray:
        """The ends of a window of documents, `[first:stop]`."""
        first, stop, step = window.indices(self.size)
        if step != 1:
            raise ValueError(f"a window of documents has step {step}; 1 is allowed, take() gives single ones")
        found = [np.zeros(0, np.int64)]
        begin = int(np.searchsorted(self.firsts, first, side="right")) - 1
        for shard in range(begin, int(np.searchsorted(self.firsts[:-1], stop))):
            low = int(self.firsts[shard])
            found.append(self.shards[shard][max(0, first - low) : max(0, stop - low)] + self.bases[shard])
        return np.concatenate(found)

    def take(self, documents: np.ndarray) -> np.ndarray:
        """The end of each document."""
        ends = np.empty(len(documents), np.int64)
        for number, here in _by_shard(documents, self.firsts):
            ends[here] = self.shards[number][documents[here] - self.firsts[number]] + self.bases[number]
        return ends

    def at_or_before(self, tokens: np.ndarray) -> np.ndarray:
        """How many documents end at or before each token, which is the number of the document that holds it."""
        found = np.zeros(len(tokens), np.int64)
        for number, here in _by_shard(tokens, self.bases):
            within = np.searchsorted(self.shards[number], tokens[here] - self.bases[number], side="right")
            found[here] = within + self.firsts[number]
        return found


def _by_shard(values: np.ndarray, firsts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(shard, where in `values` it has some), ascending there: a search for rising values is quick. What lies before the first
    shard or after the last is theirs."""
    order = np.argsort(values)
    edges = np.searchsorted(values[order], firsts[1:-1])
    for number, (low, high) in enumerate(pairwise([0, *edges.tolist(), len(order)][: len(firsts)])):
        if low < high:
            yield number, order[low:high]
