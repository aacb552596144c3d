"""95 % intervals: Wilson's for shares, a bootstrap over units for ratios of sums and for a mean of such ratios."""

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054
RESAMPLES = 1_000


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the interval of a share (Wilson 1927); it is sensible at 0 and at 1, where the normal one has no width.

    >>> [round(x, 3) for x in wilson(0, 20)]
    [0.0, 0.161]
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials give no share")
    share = successes / trials
    spread = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    centre, scale = share + Z95**2 / (2 * trials), 1 + Z95**2 / trials
    return min(share, max(0.0, (centre - spread) / scale)), max(share, min(1.0, (centre + spread) / scale))


def ratio_bootstrap(numerators: np.ndarray, denominators: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return (ratio of sums, low, high), units resampled together; one unit alone gives no interval and is its own
    bounds.

    The ratio of sums is the estimate itself (bits over bytes of everything), not a mean of ratios.
    """
    ratio = float(numerators.sum() / denominators.sum())
    if numerators.size < 2:
        return ratio, ratio, ratio
    ratios = _resampled_ratios(numerators, denominators, np.random.Generator(np.random.PCG64(seed)))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return ratio, min(ratio, float(low)), max(ratio, float(high))


def mean_bootstrap(values: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return (mean, low, high) over units; of paired differences, this is the paired comparison."""
    return ratio_bootstrap(values, np.ones(values.size), seed)


def difference_bootstrap(first: np.ndarray, second: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return (mean of the first minus mean of the second, low, high), each side resampled alone: two groups of units,
    not pairs.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    sides = [_resampled_ratios(side, np.ones(side.size), generator) for side in (first, second)]
    value = float(first.mean() - second.mean())
    low, high = np.quantile(sides[0] - sides[1], [0.025, 0.975])
    return value, min(value, float(low)), max(value, float(high))


def macro_bootstrap(groups: Sequence[tuple[np.ndarray, np.ndarray]], seed: int) -> tuple[float, float, float]:
    """Return (mean over groups of each one's ratio of sums, low, high); every group (numerators, denominators) is
    resampled alone.

    The mean of the groups' own bounds would be no 95 % interval: groups err independently, so their mean errs less. A
    group of one unit adds no width.
    """
    if not groups:
        raise ValueError("a mean over no group has no value; give at least one (numerators, denominators)")
    value = float(np.mean([numerators.sum() / denominators.sum() for numerators, denominators in groups]))
    generator = np.random.Generator(np.random.PCG64(seed))
    means = np.mean([_resampled_ratios(*group, generator) for group in groups], axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return value, min(value, float(low)), max(value, float(high))


def _resampled_ratios(numerators: np.ndarray, denominators: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return ratios of sums [RESAMPLES], the units drawn with replacement."""
    rows = generator.integers(0, numerators.size, size=(RESAMPLES, numerators.size))
    return numerators[rows].sum(axis=1) / denominators[rows].sum(axis=1)
