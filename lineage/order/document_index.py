"""Where a document is among the ids of a token cache, without a dictionary of all of them.

Ids are compared where they lie, in the mapped files. A corpus is sorted by id and its cache keeps the order, so each shard is
its own sorted table and a search reads a few pages of it. A shard that is not sorted gets a table of positions, 8 bytes a
document (a dictionary takes 147).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK = 1 << 20
"""Ids that are compared at once when a shard's order is checked."""


@dataclass(frozen=True)
class DocumentIndex:
    """The ids of each shard as one array of 16 bytes each, and the positions in sorted order where they are not sorted."""

    keys: Sequence[np.ndarray]
    sorters: Sequence[np.ndarray | None]
    firsts: Sequence[int]
    """Number of the first document of each shard."""

    @staticmethod
    def of(shard_ids: Sequence[np.ndarray]) -> "DocumentIndex":
        """Build it from each shard's ids: uint8 [documents, 16]."""
        keys = [ids.view(f"V{ids.shape[1]}").ravel() for ids in shard_ids]
        counts = [len(each) for each in keys]
        firsts = [sum(counts[:number]) for number in range(len(counts))]
        return DocumentIndex(
            keys, [None if _is_sorted(each) else np.argsort(_comparable(each), kind="stable") for each in keys], firsts
        )

    def find(self, document: bytes) -> int | None:
        """Return the number of the last document with an id, or None."""
        for keys, sorter, first in zip(reversed(self.keys), reversed(self.sorters), reversed(self.firsts), strict=True):
            position = _last_equal(keys, sorter, document)
            if position is not None:
                return first + position
        return None


def _last_equal(keys: np.ndarray, sorter: np.ndarray | None, document: bytes) -> int | None:
    """Return the position of the last key that equals a document's id, or None."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle if sorter is None else sorter[middle]].tobytes() <= document:
            low = middle + 1
        else:
            high = middle
    if not low:
        return None
    position = int(low - 1 if sorter is None else sorter[low - 1])
    return position if keys[position].tobytes() == document else None


def _comparable(keys: np.ndarray) -> np.ndarray:
    """Return keys as byte strings, which compare from the first byte on (zeros at their end do not count, and do not matter:
    all have one length)."""
    return keys.view(f"S{keys.itemsize}")


def _is_sorted(keys: np.ndarray) -> bool:
    compared = _comparable(keys)
    return all(
        bool(np.all(compared[start : start + CHUNK][:-1] <= compared[start + 1 : start + CHUNK]))
        for start in range(0, len(keys), CHUNK - 1)
    )
