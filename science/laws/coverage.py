"""The coverage study: how often 90 % intervals hold in simulated sweeps of known laws, and how wide they are."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.calibrate import two_terms
from science.laws.fit import fit, repeat_noise
from science.laws.forms import CHINCHILLA, FORMS, pinned
from science.laws.interval import Prediction, envelope, predict
from science.laws.simulate import KnownLaw, best_size, design, known_laws, simulate

RATIOS = (2.5, 5.0, 10.0)
LEVEL = 0.9
EXPONENTS = {"chinchilla": {"alpha": 0.3392, "beta": 0.2849}}
REFIT = {"alpha": 0.3478, "beta": 0.3658}


@dataclass(frozen=True)
class CoverageRow:
    """One law at one multiple of the largest budget; widths are medians in nats."""

    law: str
    ratio: float
    sweeps: int
    loss: float
    right: float | None
    """Coverage of the right form alone; None where no form is right."""
    right_width: float | None
    wrong: float
    """Coverage of Chinchilla's form alone, whatever the law."""
    envelope: float
    envelope_width: float
    known_width: float
    """Width where the exponents are known."""


def study(sweeps: int, sigma: float, seed: int, ratios: tuple[float, ...] = RATIOS) -> list[CoverageRow]:
    """Simulate, fit every form, and count new runs inside the intervals. `sigma` in nats."""
    return [row for law in known_laws() for row in _of_law(law, sweeps, sigma, seed, ratios)]


def _of_law(law: KnownLaw, sweeps: int, sigma: float, seed: int, ratios: tuple[float, ...]) -> list[CoverageRow]:
    random = np.random.default_rng([seed, len(law.name)])
    points = design()
    data = simulate(law.loss, points, sweeps, sigma, random)
    noise = repeat_noise(data)
    fits = [fit(form, data) for form in FORMS]
    known = fit(pinned(CHINCHILLA, EXPONENTS.get(law.name, REFIT)), data)
    rows = []
    for ratio in ratios:
        at = best_size(law.loss, ratio * points.budgets.max())
        truth = float(law.loss(np.array([at[0]]), np.array([at[1]]))[0])
        new = np.log(truth + two_terms(random, sigma, (sweeps,)))
        told = {found.form.name: predict(found, *at, noise) for found in fits}
        low, high = envelope(list(told.values()), LEVEL)
        right = told.get(law.form)
        rows.append(
            CoverageRow(
                law.name, ratio, sweeps, truth,
                None if right is None else _covered(right, new), None if right is None else _width(right) * truth,
                _covered(told["chinchilla"], new), float(((new >= low) & (new <= high)).mean()),
                float(np.median(high - low)) * truth, _width(predict(known, *at, noise)) * truth,
            )
        )  # fmt: skip
    return rows


def _half(told: Prediction) -> np.ndarray:
    return special.stdtrit(told.freedom, 0.5 + LEVEL / 2) * told.scale


def _covered(told: Prediction, new: np.ndarray) -> float:
    return float((np.abs(new - told.centre) <= _half(told)).mean())


def _width(told: Prediction) -> float:
    return float(np.median(2 * _half(told)))
