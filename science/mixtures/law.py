"""The log-linear law of mixtures: c + exp(a + t . w) (Ye et al. 2024, arXiv 2403.16952)."""

from dataclasses import dataclass, replace

import numpy as np

from science.laws.descent import descend

SLOPE_WIDTH = 3.0
"""Prior width of the slopes; published slopes are below it."""
NOISE_SHARE = 0.05
"""Noise that a law alone is fitted with, as a share of the spread of the losses."""
ROUNDS, TOLERANCE = 40, 1e-6
"""Where a refit stops: after so many steps, or when one gains less than this share. Where a metric is linear in w, the floor
goes down without end, and nothing is gained by following it."""
FLOORS = (0.3, 1.0, 3.0, 10.0)
"""First floors, in spreads of the losses below the lowest."""


@dataclass(frozen=True)
class Law:
    """A fitted law. A call gives the metric (mixtures,) of weights (mixtures, sources)."""

    parameters: np.ndarray
    """(2 + sources,): c, then a and t around `centre`."""
    centre: np.ndarray

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        return self.parameters[0] + self._above(weights)

    def derivatives(self, weights: np.ndarray) -> np.ndarray:
        """Derivatives (mixtures, 2 + sources) by the parameters."""
        above = self._above(weights)[:, None]
        return np.concatenate([np.ones_like(above), above, above * (np.atleast_2d(weights) - self.centre)], axis=1)

    def _above(self, weights: np.ndarray) -> np.ndarray:
        return np.exp(self.parameters[1] + (np.atleast_2d(weights) - self.centre) @ self.parameters[2:])


def prior_precision(noise: float, sources: int) -> np.ndarray:
    """Precision (2 + sources,) of each parameter's prior, in precisions of a run; a floor and a level have none."""
    return np.array([0.0, 0.0] + [(noise / SLOPE_WIDTH) ** 2] * sources)


def fit_law(weights: np.ndarray, losses: np.ndarray) -> Law:
    """Fit (runs, sources) and (runs,) by least squares with a weak prior on the slopes, from a grid of floors."""
    scale, centre = max(float(losses.std()), 1e-9), weights.mean(axis=0)
    centred = weights - centre

    def residuals(p: np.ndarray) -> np.ndarray:
        predicted = p[:, [0]] + np.exp(p[:, [1]] + p[:, 2:] @ centred.T)
        return np.concatenate([(predicted - losses) / scale, p[:, 2:] * (NOISE_SHARE / SLOPE_WIDTH)], axis=1)

    with np.errstate(over="ignore", invalid="ignore"):
        descent = descend(residuals, _starts(centred, losses, scale), np.inf, rounds=80, tolerance=1e-7)
    return Law(descent.parameters[int(np.nanargmin(descent.objective))], centre)


def refit(law: Law, weights: np.ndarray, losses: np.ndarray, whitening: np.ndarray, precision: np.ndarray) -> Law:
    """Go on from a law for runs whose errors are correlated; `whitening` (runs, runs) makes them independent.

    `precision` is that of the prior, as `prior_precision` gives it. Levenberg and Marquardt's method with exact derivatives.
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
    floors = losses.min() - np.array(FLOORS) * scale
    return np.array([[floor, *np.linalg.solve(normal, design.T @ np.log(losses - floor))] for floor in floors])
