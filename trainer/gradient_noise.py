"""The noise of a step's gradient, from the gradients of its microbatches.

Appendix A.1 of McCandlish et al. 2018, arXiv 1812.06162: the squared norms of gradients of a small and of a large batch give
unbiased estimates of |G|^2, the squared norm of the true gradient, and of tr(Sigma), the trace of the covariance of one token's
gradient. Here the small batches are the microbatches and the large one is the step. The noise scale tr(Sigma) / |G|^2 is a
number of tokens. A ratio of averages over many steps estimates it; the ratio of one step does not.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import polars as pl
from jaxtyping import Array, Float, PyTree

from trainer.spec.stage import NOISE_COLUMNS

WINDOW = 100
"""Steps over which trackers see averages."""


class PartSquares(NamedTuple):
    """What the microbatches of a step add up to."""

    weighted: Float[Array, ""]
    """Squared norms of their gradients, each times the weight of its microbatch."""
    parts: Float[Array, ""]
    """How many of them have a weight above 0."""


def nothing_yet() -> PartSquares:
    return PartSquares(jnp.float32(0), jnp.float32(0))


def with_part(so_far: PartSquares, gradients: PyTree, weight: Array) -> PartSquares:
    """Add the gradient of a microbatch. One of weight 0 does not count, even if its gradient is 0 / 0."""
    square = sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(gradients))
    return PartSquares(
        so_far.weighted + jnp.where(weight > 0, weight * square, 0.0), so_far.parts + (weight > 0).astype(jnp.float32)
    )


def noise_terms(squares: PartSquares, weight: Array, norm: Array, tokens: int) -> Float[Array, "2"]:
    """Unbiased estimates of (|G|^2, tr(Sigma)) of a step; NaN where fewer than two microbatches count.

    `weight` is the sum of the weights of the microbatches, `norm` that of the step's gradient before any clip, and `tokens` all
    that the step reads. A microbatch of weight w has covariance Sigma / w, so with weights that are unequal too

        sum_i w_i |g_i|^2 - W |g|^2  has the expectation  (parts - 1) tr(Sigma).

    Sigma is stated for one token that is read, so that the noise scale compares with `batch_size` x `seq_len` where a mask
    leaves some out of the loss. Tokens of a sequence are not independent; Sigma is what sequences of this length show.
    """
    square = jnp.square(norm)
    trace = (squares.weighted - weight * square) / (squares.parts - 1) * (tokens / weight)
    return jnp.where(squares.parts > 1, jnp.stack([square - trace / tokens, trace]), jnp.nan)


@dataclass
class RecentNoise:
    """Averages over the last steps for the trackers, a function of the metrics table alone: a resumed run continues them."""

    rows: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @staticmethod
    def of(metrics: pl.DataFrame) -> "RecentNoise":
        """Those of the rows of a table; none if it lacks the columns."""
        recent = RecentNoise()
        if set(NOISE_COLUMNS) <= set(metrics.columns):
            for terms in metrics.select(NOISE_COLUMNS).tail(WINDOW).iter_rows():
                recent.add(terms)
        return recent

    def add(self, terms: Sequence[float | None]) -> None:
        """Add the terms of a step; one without both is left out."""
        square, trace = (math.nan if term is None else float(term) for term in terms)
        if math.isfinite(square) and math.isfinite(trace):
            self.rows.append((square, trace))

    def values(self) -> dict[str, float]:
        """|G|^2, tr(Sigma) and their ratio in tokens; the ratio is NaN while the average of |G|^2 is not above 0."""
        if not self.rows:
            return {}
        square, trace = (statistics.fmean(column) for column in zip(*self.rows, strict=True))
        scale = trace / square if square > 0 else math.nan
        return {"noise/gradient_square": square, "noise/trace": trace, "noise/scale_tokens": scale}
