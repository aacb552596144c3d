"""The arrays that a next-token step trains on. Other objectives have batches of their own."""

from typing import NamedTuple

import jax
import numpy as np

type Rows = jax.Array | np.ndarray
"""[batch, sequence], the whole batch or the rows that this process's devices hold."""


class Batch(NamedTuple):
    """The arrays of a step, of a microbatch, or of the rows that a process holds."""

    tokens: Rows
    weights: Rows | None = None
    """Weight of each token as a prediction target; None: every token counts once."""
    segment_ids: Rows | None = None
    """Tokens attend to their own segment only; None: attention crosses documents."""
