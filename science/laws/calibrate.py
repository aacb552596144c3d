"""Calibrate an interval: simulate the fitted law at the sweep's own design, refit, and see how often the interval holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.fit import Fit, Points, fit, repeat_noise
from science.laws.interval import predict

NOMINAL = 0.9


@dataclass(frozen=True)
class Calibration:
    """How a form's interval did in simulated sweeps."""

    draws: int
    coverage: float
    """Share of simulated new runs inside the plain 90 % t interval."""
    stretch: float
    """Factor on the interval's width that makes the share .90; at least 1."""


def calibrate(fitted: Fit, points: Points, runs: Sequence[tuple[float, float]], draws: int, seed: int) -> list[Calibration]:
    """Simulate `draws` sweeps from the first data set's fit and new runs of each (parameters, tokens): fit, noise, interval.

    Two noise terms (data order and initialization) are drawn with equal variances that sum to that of the repeats.
    Raises: ValueError if the points have no repeats, because then the noise is unknown.
    """
    noise = repeat_noise(points)
    if noise is None:
        raise ValueError("no repeats: the noise of a run is unknown; train at least one trial with two more seeds")
    random = np.random.default_rng(seed)
    sigma = float(noise.sigma[0])
    truth = fitted.losses(points.parameters, points.tokens)[0]
    simulated = points.with_losses(truth + two_terms(random, sigma, (draws, len(truth))))
    again = fit(fitted.form, simulated, start=fitted.parameters[0])
    return [_covered(fitted, again, *run, sigma, random) for run in runs]


def _covered(
    fitted: Fit, again: Fit, parameters: float, tokens: float, sigma: float, random: np.random.Generator
) -> Calibration:
    draws = len(again.parameters)
    new = float(fitted.losses(parameters, tokens)[0, 0]) + two_terms(random, sigma, (draws,))
    prediction = predict(again, parameters, tokens)
    size = np.abs(new - prediction.centre) / prediction.scale
    edge = special.stdtrit(prediction.freedom, 0.5 + NOMINAL / 2)
    return Calibration(draws, float((size <= edge).mean()), max(1.0, float(np.quantile(size / edge, NOMINAL))))


def two_terms(random: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    """Noise of data order and of initialization, each with half of the variance `sigma` squared."""
    half = sigma / np.sqrt(2)
    return random.normal(0, half, shape) + random.normal(0, half, shape)
