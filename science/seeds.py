"""Seed variance with its two terms apart: initialization and data order, from a crossed table of runs."""

from dataclasses import dataclass

import numpy as np
from scipy import special


@dataclass(frozen=True)
class SeedVariance:
    """Components of the variance of one run's loss; `rest` is their interaction and what neither explains."""

    initialization: float
    data_order: float
    rest: float
    runs: int
    freedom: float
    """Satterthwaite's degrees of freedom of the total."""

    @property
    def sigma(self) -> float:
        """Standard deviation of a run with fresh seeds of both kinds."""
        return float(np.sqrt(self.initialization + self.data_order + self.rest))

    def smallest_visible(self, pairs: int, level: float = 0.95) -> float:
        """The difference of two recipes that `pairs` unpaired runs each would show, in the unit of the loss."""
        edge = float(special.stdtrit(max(self.freedom, 1.0), 0.5 + level / 2))
        return edge * self.sigma * float(np.sqrt(2 / pairs))


def seed_variance(losses: np.ndarray) -> SeedVariance:
    """Two-way analysis of variance of `losses` (initialization seeds, data seeds), one run a cell.

    Negative estimates of a component become 0.
    Raises: ValueError for fewer than 2 seeds of a kind, or for a loss that is not finite.
    """
    if losses.ndim != 2 or min(losses.shape) < 2:
        raise ValueError(f"losses have shape {losses.shape}; give at least 2 initialization seeds x 2 data seeds")
    if not np.isfinite(losses).all():
        raise ValueError("a run of the table diverged; repeat it with another seed, or leave out its row")
    rows, columns = losses.shape
    mean = losses.mean()
    by_row, by_column = losses.mean(axis=1), losses.mean(axis=0)
    rest = float(((losses - by_row[:, None] - by_column[None] + mean) ** 2).sum()) / ((rows - 1) * (columns - 1))
    of_rows = columns * float(((by_row - mean) ** 2).sum()) / (rows - 1)
    of_columns = rows * float(((by_column - mean) ** 2).sum()) / (columns - 1)
    shares = (1 / columns, 1 / rows, 1 - 1 / columns - 1 / rows)
    terms = [
        (shares[0] * of_rows, rows - 1),
        (shares[1] * of_columns, columns - 1),
        (shares[2] * rest, (rows - 1) * (columns - 1)),
    ]
    total = sum(value for value, _ in terms)
    freedom = total**2 / max(sum(value**2 / degrees for value, degrees in terms), 1e-300)
    return SeedVariance(max(0.0, (of_rows - rest) / columns), max(0.0, (of_columns - rest) / rows), rest, losses.size, freedom)
