"""Robust nonlinear least squares for many problems at once: Levenberg and Marquardt's method on the sum of Huber losses."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

type Residuals = Callable[[np.ndarray], np.ndarray]
"""(problems, parameters) -> (problems, points). It must accept complex parameters: derivatives are complex steps."""
STEP = 1e-30
MOST_DAMPING = 1e12


@dataclass(frozen=True)
class Minimum:
    """Where the descents ended, one row a problem."""

    parameters: np.ndarray
    objective: np.ndarray
    """Sum of Huber losses, half the square inside `delta`."""
    converged: np.ndarray
    """Whether no direction improves the objective by more than the tolerance."""


def jacobian(residuals: Residuals, parameters: np.ndarray) -> np.ndarray:
    """Derivatives (problems, points, parameters), exact to rounding (Squire and Trapp 1998, SIAM Review 40)."""
    columns = []
    for index in range(parameters.shape[1]):
        moved = parameters.astype(complex)
        moved[:, index] += 1j * STEP
        columns.append(residuals(moved).imag / STEP)
    return np.stack(columns, axis=-1)


def huber(residuals: np.ndarray, delta: np.ndarray | float) -> np.ndarray:
    """Huber's loss of each residual: half the square up to `delta`, linear beyond."""
    size = np.abs(residuals)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def descend(
    residuals: Residuals, starts: np.ndarray, delta: np.ndarray | float, rounds: int = 300, tolerance: float = 1e-11
) -> Minimum:
    """Minimize the sum over points of Huber losses from `starts` (problems, parameters), each problem by itself.

    The sum and not the mean: with the mean of small losses a common optimizer stops early (Besiroglu et al. 2024,
    arXiv 2404.10102). `delta` is a number or one row that broadcasts over points.
    """
    here = starts.astype(float)
    damping = np.full(len(here), 1e-3)
    current = residuals(here)
    objective = huber(current, delta).sum(axis=1)
    converged = np.zeros(len(here), bool)
    still = np.zeros(len(here), int)
    for _ in range(rounds):
        slopes = jacobian(residuals, here)
        weights = np.minimum(1.0, delta / np.maximum(np.abs(current), 1e-300))
        normal = np.einsum("bnp,bn,bnq->bpq", slopes, weights, slopes)
        gradient = np.einsum("bnp,bn,bn->bp", slopes, weights, current)
        diagonal = np.einsum("bpp->bp", normal) + 1e-12 * np.einsum("bpp->b", normal)[:, None] + 1e-300
        damped = normal + np.eye(here.shape[1]) * (damping[:, None] * diagonal)[:, None, :]
        step = -np.linalg.solve(damped, gradient[..., None])[..., 0]
        there = here + step
        with np.errstate(over="ignore", invalid="ignore"):
            tried = residuals(there)
            value = huber(tried, delta).sum(axis=1)
        better = np.isfinite(value) & (value < objective)
        gain = np.where(better, objective - value, 0.0)
        still = np.where(gain > tolerance * objective, 0, still + (better | (damping >= MOST_DAMPING / 10)))
        here = np.where(better[:, None], there, here)
        current = np.where(better[:, None], tried, current)
        objective = np.where(better, value, objective)
        damping = np.clip(np.where(better, damping / 5, damping * 4), 1e-9, MOST_DAMPING)
        converged = still >= 3
        if converged.all():
            break
    return Minimum(here, objective, converged)
