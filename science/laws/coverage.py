"""The coverage study: how often 90 % intervals hold in simulated sweeps of known laws, and how wide they are."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.calibrate import two_terms
from science.laws.fit import Points, fit
from science.laws.forms import CHINCHILLA, FARSEER, FORMS, Form, pinned
from science.laws.interval import Prediction, envelope, predict
from science.laws.simulate import KnownLaw, best_size, design, known_laws, simulate

RATIOS = (2.5, 5.0, 10.0)
LEVEL = 0.9
EXPONENTS = {"chinchilla": ("alpha", "beta"), "farseer": ("g3", "a2", "g2", "b1", "a1", "g1")}
"""By form, what a fit with known exponents knows."""


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
    """Width of the right form (Chinchilla's where none is right) if its exponents are known."""


def study(sweeps: int, sigma: float, seed: int, ratios: tuple[float, ...] = RATIOS) -> list[CoverageRow]:
    """Simulate, fit every form, and count new runs inside the intervals. `sigma` in nats."""
    return [row for law in known_laws() for row in _of_law(law, sweeps, sigma, seed, ratios)]


def _of_law(law: KnownLaw, sweeps: int, sigma: float, seed: int, ratios: tuple[float, ...]) -> list[CoverageRow]:
    random = np.random.default_rng([seed, len(law.name)])
    points = design()
    data = simulate(law.loss, points, sweeps, sigma, random)
    fits = [fit(form, data) for form in FORMS]
    known = fit(_with_known_exponents(law, points), data)
    rows = []
    for ratio in ratios:
        at = best_size(law.loss, ratio * points.budgets.max())
        truth = float(law.loss(np.array([at[0]]), np.array([at[1]]))[0])
        new = truth + two_terms(random, sigma, (sweeps,))
        predicted = {form_fit.form.name: predict(form_fit, *at) for form_fit in fits}
        low, high = envelope(list(predicted.values()), LEVEL)
        right = predicted.get(law.form)
        rows.append(
            CoverageRow(
                law.name, ratio, sweeps, truth,
                None if right is None else _covered(right, new), None if right is None else _width(right),
                _covered(predicted["chinchilla"], new), float(((new >= low) & (new <= high)).mean()),
                float(np.median(high - low)), _width(predict(known, *at)),
            )
        )  # fmt: skip
    return rows


def _with_known_exponents(law: KnownLaw, points: Points) -> Form:
    """The form with the exponents that it finds where there is no noise."""
    form = FARSEER if law.form == "farseer" else CHINCHILLA
    exact = fit(form, points.with_losses(law.loss(points.parameters, points.tokens)), delta=1e-3)
    values = dict(zip(form.names, exact.parameters[0].tolist(), strict=True))
    return pinned(form, {name: values[name] for name in EXPONENTS[form.name]})


def _half(predicted: Prediction) -> np.ndarray:
    return special.stdtrit(predicted.freedom, 0.5 + LEVEL / 2) * predicted.scale


def _covered(predicted: Prediction, new: np.ndarray) -> float:
    return float((np.abs(new - predicted.centre) <= _half(predicted)).mean())


def _width(predicted: Prediction) -> float:
    return float(np.median(2 * _half(predicted)))
