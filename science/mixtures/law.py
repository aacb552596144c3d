"""The log-linear law of mixtures (Ye et al. 2024, arXiv 2403.16952), written as level, bend and slopes at the mean of the runs.

c + exp(a + t . w) is the same as level + (exp(bend s . u) - 1) / bend. Here u is w less its mean over the runs, bend is
1 / exp(a + t . mean), and s is t / bend. A linear metric has bend 0 and no floor. A negative bend has a ceiling. A prior on s,
in units of the metric, does not move the bend. A prior on t does: it prefers low floors, because they make t small. Over 39
sources promises were then 1.5 standard errors too good (12 surfaces, 2026-11-27).
"""

from dataclasses import dataclass, replace

import numpy as np

from science.laws.descent import descend

BEND = 1.0
"""Prior width of the bend times the spread of the losses: at 1, a spread changes the height above the floor by a factor e."""
NOISE_SHARE = 0.05
"""Noise that a law alone is fitted with, as a share of the spread of the losses."""
RIDGE = 0.01
"""Where a law alone is fitted, a slope counts as this share of what it changes the metric by over a source's spread."""
ROUNDS, TOLERANCE = 40, 1e-6
"""Where a refit stops: after so many steps, or when one gains less than this share."""
FLOORS = (0.3, 1.0, 3.0, 10.0)
"""First floors, in spreads of the losses below the lowest."""
SMALL = 1e-3
"""Below this exponent the functions below are series, whose next term is under 1e-11."""


@dataclass(frozen=True)
class Law:
    """A fitted law. A call gives the metric (mixtures,) of weights (mixtures, sources)."""

    parameters: np.ndarray
    """(2 + sources,): level, bend, slopes."""
    centre: np.ndarray

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        return _metric(self.parameters[None], np.atleast_2d(weights) - self.centre)[0]

    def derivatives(self, weights: np.ndarray) -> np.ndarray:
        """Derivatives (mixtures, 2 + sources) by the parameters."""
        apart = np.atleast_2d(weights) - self.centre
        linear = apart @ self.parameters[2:]
        exponent = self.parameters[1] * linear
        columns = [np.ones_like(linear), linear**2 * _second(exponent)]
        return np.concatenate([np.stack(columns, axis=1), np.exp(exponent)[:, None] * apart], axis=1)


def _metric(parameters: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """(laws, 2 + sources), (mixtures, sources) -> (laws, mixtures). Parameters may be complex."""
    linear = parameters[:, 2:] @ apart.T
    return parameters[:, [0]] + linear * _first(parameters[:, [1]] * linear)


def _first(x: np.ndarray) -> np.ndarray:
    """(exp(x) - 1) / x."""
    small = np.abs(x) < SMALL
    safe = np.where(small, 1.0, x)
    return np.where(small, 1 + x / 2 + x**2 / 6 + x**3 / 24, np.expm1(safe) / safe)


def _second(x: np.ndarray) -> np.ndarray:
    """The derivative of (exp(x) - 1) / x."""
    small = np.abs(x) < SMALL
    safe = np.where(small, 1.0, x)
    return np.where(small, 0.5 + x / 3 + x**2 / 8 + x**3 / 30, (safe * np.exp(safe) - np.expm1(safe)) / safe**2)


def fit_law(weights: np.ndarray, losses: np.ndarray) -> Law:
    """Fit (runs, sources) and (runs,) by least squares with a weak prior on the slopes, from a grid of floors."""
    scale, centre = max(float(losses.std()), 1e-9), weights.mean(axis=0)
    centred = weights - centre
    ridge = np.array([NOISE_SHARE * scale / BEND, *(RIDGE * centred.std(axis=0) / scale)])

    def residuals(p: np.ndarray) -> np.ndarray:
        return np.concatenate([(_metric(p, centred) - losses) / scale, p[:, 1:] * ridge], axis=1)

    with np.errstate(over="ignore", invalid="ignore"):
        descent = descend(residuals, _starts(centred, losses, scale), np.inf, rounds=80, tolerance=1e-7)
    return Law(descent.parameters[int(np.nanargmin(descent.objective))], centre)


def refit(law: Law, weights: np.ndarray, losses: np.ndarray, whitening: np.ndarray, precision: np.ndarray) -> Law:
    """Go on from a law for runs whose errors are correlated; `whitening` (runs, runs) makes them independent.

    `precision` (2 + sources,) is that of the parameters' priors, in precisions of a run. Levenberg and Marquardt's method with
    exact derivatives.
    """
    damping = 1e-3
    errors = whitening @ (losses - law(weights))
    value = _objective(errors, law, precision)
    for _ in range(ROUNDS):
        slopes = whitening @ law.derivatives(weights)
        normal = slopes.T @ slopes + np.diag(precision)
        gradient = slopes.T @ errors - precision * law.parameters
        diagonal = np.diag(normal) + 1e-12 * np.trace(normal)
        step = np.linalg.solve(normal + damping * np.diag(diagonal), gradient)
        tried = replace(law, parameters=law.parameters + step)
        with np.errstate(over="ignore", invalid="ignore"):
            left = whitening @ (losses - tried(weights))
            there = _objective(left, tried, precision)
        if not there < value:  # a step out of range is not a number
            damping = min(damping * 4, 1e12)
            continue
        gained, law, errors, value, damping = value - there, tried, left, there, max(damping / 5, 1e-9)
        if gained < TOLERANCE * value:
            break
    return law


def _objective(errors: np.ndarray, law: Law, precision: np.ndarray) -> float:
    return float(errors @ errors + precision @ law.parameters**2)


def _starts(centred: np.ndarray, losses: np.ndarray, scale: float) -> np.ndarray:
    design = np.concatenate([np.ones((len(losses), 1)), centred], axis=1)
    normal = design.T @ design + 1e-3 * np.eye(design.shape[1])
    starts = [[level, 0.0, *slopes] for level, *slopes in [np.linalg.solve(normal, design.T @ losses)]]
    for floor in losses.min() - np.array(FLOORS) * scale:
        height, *slopes = np.linalg.solve(normal, design.T @ np.log(losses - floor))
        above = float(np.exp(height))
        starts.append([floor + above, 1 / above, *(above * np.array(slopes))])
    return np.array(starts)
