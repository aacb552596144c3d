"""Find one size whose losses stand off the law: a learning-rate mistake at one width looks like that."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.descent import jacobian
from science.laws.fit import Fit, Points, repeat_noise

LEVEL = 1e-3
"""Chance of naming any size where none is off."""


@dataclass(frozen=True)
class Shift:
    """How far one size stands off, in the unit of the loss, and how unlikely that is (corrected for the number of sizes)."""

    parameters: float
    shift: float
    p: float


def shifts(fitted: Fit, points: Points) -> list[Shift]:
    """For each size, the constant by which its loss differs from the law, with the law's own parameters free to answer.

    The residuals are regressed on the size's indicator after the law's slopes are projected out (a score test).
    """
    n, d = fitted.reference.logs(points.parameters, points.tokens)

    def law(p: np.ndarray) -> np.ndarray:
        return np.exp(fitted.form.log_loss(p, n, d))

    residuals = points.losses[0] - law(fitted.parameters[:1])[0]
    slopes = jacobian(law, fitted.parameters[:1])[0]
    left, values, _ = np.linalg.svd(slopes, full_matrices=False)
    basis = left[:, values > values[0] * 1e-9]
    noise = repeat_noise(points)
    spread, freedom = (noise.sigma[0], noise.freedom) if noise else (fitted.spread[0], fitted.freedom[0])
    shifts_by_size, sizes = [], np.unique(points.parameters)
    for size in sizes:
        indicator = (points.parameters == size).astype(float)
        own = indicator - basis @ (basis.T @ indicator)
        power = float(own @ own)
        if power < 1e-6:
            continue
        shift = float(own @ residuals) / power
        p = 2 * special.stdtr(freedom, -abs(shift) * np.sqrt(power) / spread)
        shifts_by_size.append(Shift(float(size), shift, min(1.0, float(p) * len(sizes))))
    return shifts_by_size


def odd_size(by_size: list[Shift]) -> Shift | None:
    """The size that is off, if one is."""
    worst = min(by_size, key=lambda shift: shift.p, default=None)
    return worst if worst is not None and worst.p < LEVEL else None
