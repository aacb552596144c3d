"""Intervals that the lab does not use, in simulated sweeps: a percentile bootstrap, and an asymptote pinned wrongly."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.calibrate import two_terms
from science.laws.coverage import LEVEL, RATIOS
from science.laws.fit import Fit, Points, fit
from science.laws.forms import CHINCHILLA, pinned
from science.laws.interval import predict
from science.laws.simulate import FLOOR, KnownLaw, best_size, design, known_laws, simulate

OFF = 0.3
"""Nats by which the pinned asymptote is too high."""


@dataclass(frozen=True)
class ComparatorRow:
    """Coverage of new runs at one multiple of the largest budget; every interval is of Chinchilla's form alone."""

    law: str
    ratio: float
    student: float
    """The delta method with Student's t."""
    bootstrap: float
    """Percentiles of refits to resampled residuals."""
    pinned: float
    """The delta method with the asymptote `OFF` too high."""


def compare(sweeps: int, sigma: float, seed: int, draws: int = 40) -> list[ComparatorRow]:
    """Simulate sweeps of each law, `sigma` in nats, and count new runs inside each interval; `draws` refits a bootstrap."""
    return [
        row for law in known_laws() for row in _of_law(law, sweeps, sigma, np.random.default_rng([seed, len(law.name)]), draws)
    ]


def _of_law(law: KnownLaw, sweeps: int, sigma: float, random: np.random.Generator, draws: int) -> list[ComparatorRow]:
    points = design()
    data = simulate(law.loss, points, sweeps, sigma, random)
    free, held = fit(CHINCHILLA, data), fit(pinned(CHINCHILLA, {"e": float(np.log(FLOOR + OFF))}), data)
    errors = data.losses - free.losses(points.parameters, points.tokens)
    again = _refits(free, data, errors, random, draws)
    rows = []
    for ratio in RATIOS:
        at = best_size(law.loss, ratio * points.budgets.max())
        new = float(law.loss(np.array([at[0]]), np.array([at[1]]))[0]) + two_terms(random, sigma, (sweeps,))
        ahead = again.losses(*at).reshape(sweeps, draws) + _resampled(errors, random, draws)
        low, high = np.quantile(ahead, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
        inside = float(((new >= low) & (new <= high)).mean())
        rows.append(ComparatorRow(law.name, ratio, _student(free, at, new), inside, _student(held, at, new)))
    return rows


def _refits(free: Fit, data: Points, errors: np.ndarray, random: np.random.Generator, draws: int) -> Fit:
    """Each sweep `draws` times: its fitted law with its residuals drawn again."""
    sweeps, count = errors.shape
    fitted = free.losses(data.parameters, data.tokens)
    drawn = np.take_along_axis(errors[:, None], random.integers(0, count, (sweeps, draws, count)), axis=2)
    losses = (fitted[:, None] + drawn).reshape(-1, count)
    return fit(CHINCHILLA, data.with_losses(losses), start=np.repeat(free.parameters, draws, axis=0))


def _resampled(errors: np.ndarray, random: np.random.Generator, draws: int) -> np.ndarray:
    """The noise of new runs: one residual a refit, (sweeps, draws)."""
    return np.take_along_axis(errors, random.integers(0, errors.shape[1], (len(errors), draws)), axis=1)


def _student(fitted: Fit, at: tuple[float, float], new: np.ndarray) -> float:
    prediction = predict(fitted, *at)
    half = special.stdtrit(prediction.freedom, 0.5 + LEVEL / 2) * prediction.scale
    return float((np.abs(new - prediction.centre) <= half).mean())
