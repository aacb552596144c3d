"""Cost of a stage as a function of its input: a + b n + c n log2 n, fitted to runs of several sizes, with an interval.

Coefficients are not negative, and errors are relative: a run of 1 GB counts as much as one of 100 MB. The interval is
that of a bootstrap over the residuals: other runs of the same sizes would give other coefficients. It does not know what
changes beyond the measured sizes, such as another cache or a further pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

RESAMPLES = 1_000
LEVEL = 0.95
TERMS = 3


@dataclass(frozen=True)
class Estimate:
    """A predicted value and the interval that holds it with probability `LEVEL`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Rate:
    """A fitted cost. `coefficients` [3] are those of 1, n and n log2 n; `resampled` [RESAMPLES, 3] those of other runs."""

    coefficients: np.ndarray
    resampled: np.ndarray
    noise: float
    """Standard deviation of the relative errors."""

    def at(self, size: float) -> Estimate:
        """Return the cost of an input of `size` bytes, with the interval of its mean."""
        terms = _terms(np.array([size]))[0]
        low, high = np.quantile(self.resampled @ terms, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Estimate(float(self.coefficients @ terms), float(low), float(high))


def fit(sizes: Sequence[float], costs: Sequence[float], seed: int = 0) -> Rate:
    """Fit the cost of inputs of these bytes.

    Raises: ValueError for fewer than three different sizes, or if a size or a cost is not positive.
    """
    given, paid = np.asarray(sizes, float), np.asarray(costs, float)
    if np.unique(given).size < TERMS:
        raise ValueError(f"sizes are {sorted(set(given.tolist()))}; a fit of {TERMS} terms needs at least {TERMS} of them")
    if min(given.min(), paid.min()) <= 0:
        raise ValueError(f"sizes {given.tolist()} and costs {paid.tolist()} must be above 0")
    terms = _terms(given)
    coefficients = _solved(terms, paid)
    expected = terms @ coefficients
    errors = paid / expected - 1
    spread = np.sqrt(paid.size / max(1, paid.size - TERMS))
    choose = np.random.default_rng(seed)
    drawn = choose.choice(errors, (RESAMPLES, paid.size)) * spread
    resampled = np.array([_solved(terms, np.maximum(expected * (1 + each), expected * 0.01)) for each in drawn])
    return Rate(coefficients, resampled, float(errors.std() * spread))


def _terms(sizes: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(sizes), sizes, sizes * np.log2(sizes)], axis=1)


def _solved(terms: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the coefficients of least relative error. Columns are scaled, because they differ by 1e10."""
    weighted = terms / costs[:, None]
    scale = weighted.max(axis=0)
    return nnls(weighted / scale, np.ones(costs.size))[0] / scale
