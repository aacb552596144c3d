"""Arrays of rows no longer than the longest row of an iteration, and how such short rows are computed. No JAX.

A row is a prompt and its completion. Shapes: R rows, S positions of a row, C tokens of a completion.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec

PARTS, TILE = 8, 128
TOGETHER_BYTES = 1 << 23
"""Scores of attention that are computed at once on a CPU. A loop over 256 rows of 16 tokens takes longer than the products."""


def rounded(longest: int, most: int) -> int:
    """Return how many positions rows get: at least `longest`, at most `most`, and a multiple of an eighth of `most`.

    So few sizes are compiled. They are multiples of 128 if `most` is one, because the attention of accelerators takes these.

    >>> [rounded(longest, 16) for longest in (3, 4, 12, 15)], rounded(700, 2048), rounded(130, 512)
    ([4, 4, 12, 16], 768, 256)
    """
    unit = -(-most // PARTS)
    if most % TILE == 0:
        unit = -(-unit // TILE) * TILE
    return min(-(-longest // unit) * unit, most)


def filled(
    prompts: Int[np.ndarray, "R S"],
    starts: Int[np.ndarray, " R"],
    completions: Int[np.ndarray, "R C"],
    lengths: Int[np.ndarray, " R"],
) -> Int[np.ndarray, "R S"]:
    """Return the rows of prompts with their completions put behind them. `lengths` are those of prompt and completion."""
    rows = prompts.copy()
    rows[inside(starts, lengths, prompts.shape[1])] = completions[inside(0, lengths - starts, completions.shape[1])]
    return rows


def inside(first: Int[np.ndarray, " R"] | int, end: Int[np.ndarray, " R"], size: int) -> np.ndarray:
    """Return which of `size` places of each row are in [first, end)."""
    places = np.arange(size)
    return (places >= np.reshape(first, (-1, 1))) & (places < end[:, None])


def masked(starts: Int[np.ndarray, " R"], lengths: Int[np.ndarray, " R"], size: int) -> Float[np.ndarray, "R C"]:
    """1 at the tokens that each completion has."""
    return inside(0, lengths - starts, size).astype(np.float32)


def together(compute: Compute, run: RunSpec) -> Compute:
    """Return how rows are computed: attention takes all rows of an update at once if their scores are few."""
    rows = run.microbatch_size or run.batches.size(0)
    size = 4 * rows * run.model.num_heads * run.seq_len**2
    return replace(compute, one_by_one=False) if size <= TOGETHER_BYTES else compute
