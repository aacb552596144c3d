"""The gradient-noise scale of a run: tr(Sigma) / |G|^2 in tokens, with its interval from blocks of steps.

McCandlish et al. 2018, arXiv 1812.06162: an update from a batch of as many tokens makes half of the progress that one from the
whole distribution makes, so the scale predicts the critical batch without a sweep over batches. Each step of a run with
`gradient_noise` gives unbiased estimates of both terms (`trainer.gradient_noise`), which are averaged before the ratio.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

LEAST_BLOCKS = 5


@dataclass(frozen=True)
class NoiseScale:
    """The noise scale of a stretch of a run."""

    tokens: float | None
    """None where the mean of |G|^2 is not above 0: the steps are too few for this noise."""
    low: float | None
    """None where the interval has no end: the steps do not tell |G|^2 from 0."""
    high: float | None
    gradient_square: float
    """Mean |G|^2. It falls along a run, so the scale is an average that weighs each step by its |G|^2."""
    noise_trace: float
    """Mean tr(Sigma)."""
    steps: int
    blocks: int


def noise_scale(squares: np.ndarray, traces: np.ndarray, blocks: int, level: float = 0.9) -> NoiseScale:
    """The ratio of means, with Fieller's interval over the means of blocks of consecutive steps.

    A scale is inside if a t test of the blocks' means of tr(Sigma) - scale x |G|^2 does not reject 0 (Fieller 1954, JRSS B 16).
    Blocks hold what neighbouring steps share. Steps without finite terms are left out.
    Raises: ValueError for fewer than 5 blocks, or fewer steps than blocks.
    """
    kept = np.isfinite(squares) & np.isfinite(traces)
    x, y = np.asarray(traces, float)[kept], np.asarray(squares, float)[kept]
    if blocks < LEAST_BLOCKS or len(x) < blocks:
        raise ValueError(f"{len(x)} steps in {blocks} blocks; a noise scale needs {LEAST_BLOCKS} blocks of 1 step or more")
    means = np.array([[part.mean() for part in np.array_split(terms, blocks)] for terms in (x, y)])
    low, high = fieller(means, level)
    trace, square = float(x.mean()), float(y.mean())
    return NoiseScale(trace / square if square > 0 else None, low, high, square, trace, len(x), blocks)


def fieller(pairs: np.ndarray, level: float) -> tuple[float | None, float | None]:
    """(low, high) of the ratio of the mean of row 0 to that of row 1; an end is None where the ratio has none.

    The ratio r is inside where (X - r Y)^2 <= t^2 (S_xx - 2 r S_xy + r^2 S_yy), S the covariance of the two means.
    """
    count = pairs.shape[1]
    (x, y), covariance = pairs.mean(axis=1), np.cov(pairs) / count
    edge = float(special.stdtrit(count - 1, 0.5 + level / 2)) ** 2
    square, line, constant = (
        y * y - edge * covariance[1, 1], x * y - edge * covariance[0, 1], x * x - edge * covariance[0, 0]
    )  # fmt: skip
    if (square > 0 and y < 0) or (square <= 0 and constant <= 0):
        return None, None  # no scale above 0, or any of them
    larger = line + float(np.sqrt(max(line * line - square * constant, 0.0)))
    return float(constant / larger), float(larger / square) if square > 0 else None
