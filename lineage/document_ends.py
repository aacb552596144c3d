"""Where the documents of a token cache end, over the memory maps of its shards: nothing as long as the documents is made.

A shard's ends are in its own tokens; asked here they are in tokens of the whole cache. 10^8 documents are 800 MB on disk, and
in memory what somebody reads of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

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
        shard = np.searchsorted(self.firsts, documents, side="right") - 1
        ends = np.empty(len(documents), np.int64)
        for number in np.unique(shard).tolist():
            here = shard == number
            ends[here] = self.shards[number][documents[here] - self.firsts[number]] + self.bases[number]
        return ends

    def at_or_before(self, tokens: np.ndarray) -> np.ndarray:
        """How many documents end at or before each token, which is the number of the document that holds it."""
        if not self.shards:
            return np.zeros(len(tokens), np.int64)
        shard = np.minimum(np.searchsorted(self.bases, tokens, side="right") - 1, len(self.shards) - 1)
        found = np.empty(len(tokens), np.int64)
        for number in np.unique(shard).tolist():
            here = shard == number
            within = np.searchsorted(self.shards[number], tokens[here] - self.bases[number], side="right")
            found[here] = within + self.firsts[number]
        return found
