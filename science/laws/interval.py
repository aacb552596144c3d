"""Prediction intervals of a new run's loss: Student's t by form, and the envelope of several forms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.fit import Fit

LEVELS = (0.5, 0.8, 0.9, 0.99)
BISECTIONS = 60


@dataclass(frozen=True)
class Prediction:
    """What one form says about one new run, in the unit of the loss; every field is (data sets,)."""

    name: str
    centre: np.ndarray
    scale: np.ndarray
    """Standard deviation of the new run's loss: uncertainty of the fit and noise of the run."""
    freedom: np.ndarray
    weight: np.ndarray
    """How far the repeats support the form, before weights are made to sum to 1."""


def predict(fitted: Fit, parameters: float, tokens: float, stretch: np.ndarray | float = 1.0) -> Prediction:
    """The prediction of a fitted form for a run of one seed. `stretch` comes from the calibration (`science.laws.calibrate`).

    The noise of the new run is the spread of the residuals: it has more degrees of freedom than the repeats alone, with which
    the right form covered .83 instead of .87, and it grows where the form is wrong.
    """
    error = fitted.standard_errors(parameters, tokens)
    scale = np.sqrt(error**2 + fitted.spread**2) * stretch
    return Prediction(
        fitted.form.name,
        fitted.losses(parameters, tokens)[:, 0],
        scale,
        fitted.freedom,
        np.maximum(fitted.lack_of_fit, 1e-12),
    )


def envelope(predictions: Sequence[Prediction], level: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high): the central interval of the mixture of the forms' t distributions, weighted by lack of fit.

    A form that the repeats reject hardly counts. Where several forms fit, their disagreement widens the interval.
    """
    tail = (1 - level) / 2
    return _quantile(predictions, tail), _quantile(predictions, 1 - tail)


def centre(predictions: Sequence[Prediction]) -> np.ndarray:
    """The median of the mixture."""
    return _quantile(predictions, 0.5)


def shares(predictions: Sequence[Prediction]) -> np.ndarray:
    """Weights of the forms, (forms, data sets), summing to 1 over forms."""
    weights = np.stack([prediction.weight for prediction in predictions])
    return weights / weights.sum(axis=0)


def _quantile(predictions: Sequence[Prediction], probability: float) -> np.ndarray:
    weights = shares(predictions)
    reach = [special.stdtrit(each.freedom, np.clip(probability, 1e-9, 1 - 1e-9)) * each.scale for each in predictions]
    ends = np.stack([each.centre + width for each, width in zip(predictions, reach, strict=True)])
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = sum(
            weight * special.stdtr(each.freedom, (middle - each.centre) / each.scale)
            for weight, each in zip(weights, predictions, strict=True)
        )
        low, high = np.where(below < probability, middle, low), np.where(below < probability, high, middle)
    return 0.5 * (low + high)
