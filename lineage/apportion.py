"""How many sequences of a block each component gets, so that weights hold exactly in the long run."""

import numpy as np


def apportion(weights: np.ndarray, block_size: int, debt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts [components] of one block, summing to `block_size`, and the error left for the next block.

    `weights` sum to 1; `debt` is what earlier blocks still owe each component, in sequences.
    """
    owed = debt + weights * block_size
    counts = np.where(weights > 0, np.floor(np.maximum(owed, 0)), 0).astype(np.int64)
    rank = np.where(weights > 0, owed - counts, -np.inf)
    while (missing := block_size - int(counts.sum())) > 0:
        top = np.argsort(-rank, kind="stable")[: min(missing, int((weights > 0).sum()))]
        counts[top] += 1
        rank[top] -= 1
    while counts.sum() > block_size:
        candidates = np.flatnonzero(counts > 0)
        lowest = candidates[np.argmin(rank[candidates])]
        counts[lowest] -= 1
        rank[lowest] += 1
    return counts, owed - counts
