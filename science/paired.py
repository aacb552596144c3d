"""Two recipes on the same seeds and data: the interval of their difference, the grid of rates before it, compute saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Paired:
    """Mean of paired differences (variant less baseline) with Student's t interval."""

    mean: float
    low: float
    high: float
    pairs: int
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def paired(baseline: Sequence[float], variant: Sequence[float], level: float = 0.95) -> Paired:
    """Interval of the mean difference over pairs. Raises: ValueError for fewer than 2 pairs or unequal lengths."""
    if len(baseline) != len(variant) or len(baseline) < 2:
        raise ValueError(f"{len(baseline)} baseline and {len(variant)} variant runs; give the same number, at least 2")
    differences = np.asarray(variant, float) - np.asarray(baseline, float)
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    edge = float(special.stdtrit(len(differences) - 1, 0.5 + level / 2)) * error
    mean = float(differences.mean())
    return Paired(mean, mean - edge, mean + edge, len(differences), level)


def best_rate(losses: Mapping[float, float | None]) -> float:
    """The rate of the lowest loss; None is a run that diverged.

    Raises: ValueError if the best rate is at an edge of the grid: a better one may lie outside.
    """
    rates = sorted(losses)
    finite = {rate: loss for rate in rates if (loss := losses[rate]) is not None}
    if len(rates) < 3 or not finite:
        raise ValueError(f"{len(finite)} of {len(rates)} rates have a loss; give at least 3 rates, of which one ends")
    best = min(finite, key=lambda rate: finite[rate])
    if best in (rates[0], rates[-1]):
        shown = ", ".join(f"{rate:g}: {losses[rate]}" for rate in rates)
        raise ValueError(f"the best rate {best:g} is at the edge of the grid ({shown}); move the grid so that it lies inside")
    return best


def compute_for(loss: float, flops: Sequence[float], losses: Sequence[float]) -> float | None:
    """FLOPs at which a baseline reaches a loss, linear in log FLOPs between measured budgets; None outside of them."""
    order = np.argsort(flops)
    x, y = np.log(np.asarray(flops, float)[order]), np.asarray(losses, float)[order]
    for left in range(len(x) - 1):
        if y[left + 1] <= loss <= y[left]:
            share = 0.0 if y[left] == y[left + 1] else (y[left] - loss) / (y[left] - y[left + 1])
            return float(np.exp(x[left] + share * (x[left + 1] - x[left])))
    return None
