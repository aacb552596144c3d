"""Fit a sweep: refuse it by name, or give every form's fit, the minima of its budgets and the noise of its repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from science.laws.calibrate import Calibration, calibrate
from science.laws.fit import Fit, Noise, Points, fit, repeat_noise
from science.laws.forms import CHINCHILLA, FARSEER, FORMS, Form, pinned
from science.laws.interval import LEVELS, Prediction, centre, envelope, predict, shares
from science.laws.parabola import Valley, valleys
from science.laws.sizes import odd_size, shifts
from science.trials import Fault, RefusedSweepError, Trial, points_of, table_faults


@dataclass(frozen=True)
class FitConfig:
    """How a sweep is fitted; part of the fit's identity, and with it of every forecast made from it."""

    forms: tuple[str, ...] = tuple(form.name for form in FORMS)
    pins: tuple[tuple[str, float], ...] = ()
    """Parameters of Chinchilla's form that are held, such as `e`, the ln of the asymptote. Then it is the only form."""
    calibration_draws: int = 200
    seed: int = 0
    max_ratio: float = 10.0
    """Most times the largest fitted budget that a forecast may reach."""
    metric: str = "held-out loss"
    unit: str = "nats a token"

    def __post_init__(self) -> None:
        known = [form.name for form in FORMS]
        unknown = sorted(set(self.forms) - set(known))
        if unknown or not self.forms:
            raise ValueError(f"forms are {self.forms}; give some of {', '.join(known)}")
        if self.calibration_draws < 50:
            raise ValueError(f"calibration_draws is {self.calibration_draws}; it must be at least 50")


@dataclass(frozen=True)
class SweepFit:
    """Every form fitted to the trials of a sweep that passed all checks."""

    config: FitConfig
    points: Points
    fits: tuple[Fit, ...]
    noise: Noise
    minima: tuple[Valley, ...]


@dataclass(frozen=True)
class Forecasted:
    """What the forms say together about a run of given size and tokens."""

    point: float
    intervals: dict[float, tuple[float, float]]
    """Level -> (low, high)."""
    weights: dict[str, float]
    disagreement: float
    """Largest difference of two forms' points, each weighted above .01."""
    coverage: dict[str, Calibration]
    noise: float
    """Standard deviation of one run, in the unit of the loss."""


def fit_sweep(trials: Sequence[Trial], config: FitConfig) -> SweepFit:
    """Fit all forms. Raises: RefusedSweepError naming every fault of the sweep."""
    faults = table_faults(trials)
    if faults:
        raise RefusedSweepError(faults)
    points = points_of(trials)
    minima = tuple(valleys(points))
    faults = [Fault(*valley.fault) for valley in minima if valley.fault is not None]
    faults += _diverged_centres(trials, minima)
    noise = repeat_noise(points)
    if noise is None:
        faults.append(Fault("no_repeats", "no trial has a second seed, so the noise of a run is unknown"))
    if faults or noise is None:
        raise RefusedSweepError(faults)
    odd = odd_size(shifts(fit(FARSEER, points), points))
    if odd is not None:
        what = f"{odd.parameters:.3g} parameters lie {odd.shift:+.3f} off the law (p {odd.p:.2g}): learning rate?"
        raise RefusedSweepError([Fault("size_off_the_law", what)])
    return SweepFit(config, points, tuple(fit(form, points) for form in _chosen(config)), noise, minima)


def forecast(fitted: SweepFit, parameters: float, tokens: float) -> Forecasted:
    """The point and intervals for one run of one seed. Intervals are stretched by what simulated sweeps say they lack."""
    return forecast_all(fitted, [(parameters, tokens)])[0]


def forecast_all(fitted: SweepFit, runs: Sequence[tuple[float, float]]) -> list[Forecasted]:
    """Forecast several runs, each (parameters, tokens), from the same simulated sweeps."""
    draws, seed = fitted.config.calibration_draws, fitted.config.seed
    by_form = [calibrate(form_fit, fitted.points, runs, draws, seed + number) for number, form_fit in enumerate(fitted.fits)]
    return [_forecast(fitted, *run, [checked[index] for checked in by_form]) for index, run in enumerate(runs)]


def draws(fitted: SweepFit, forecasted: Forecasted, run: tuple[float, float], count: int, seed: int) -> np.ndarray:
    """Losses of a run (parameters, tokens) drawn from the mixture that its forecast's intervals are quantiles of."""
    random = np.random.default_rng(seed)
    shape = [forecasted.weights[form_fit.form.name] for form_fit in fitted.fits]
    chosen = random.choice(len(fitted.fits), count, p=np.array(shape) / np.sum(shape))
    stretches = [forecasted.coverage[form_fit.form.name].stretch for form_fit in fitted.fits]
    each = [predict(form_fit, *run, stretch) for form_fit, stretch in zip(fitted.fits, stretches, strict=True)]
    centres, scales, freedoms = (
        np.array([float(getattr(one, name)[0]) for one in each])[chosen] for name in ("centre", "scale", "freedom")
    )
    return centres + scales * random.standard_t(freedoms)


def best_run(fitted: SweepFit, budget: float) -> tuple[float, float]:
    """(parameters, tokens) of the optimum at a budget, on the power laws through the minima of the fitted budgets."""
    budgets = np.log([valley.budget for valley in fitted.minima])
    sizes, tokens = (
        np.polyfit(budgets, np.log([getattr(valley, name) for valley in fitted.minima]), 1) for name in ("parameters", "tokens")
    )
    return float(np.exp(np.polyval(sizes, np.log(budget)))), float(np.exp(np.polyval(tokens, np.log(budget))))


def _forecast(fitted: SweepFit, parameters: float, tokens: float, checked: Sequence[Calibration]) -> Forecasted:
    coverage = {form_fit.form.name: each for form_fit, each in zip(fitted.fits, checked, strict=True)}
    predictions = [predict(form_fit, parameters, tokens, coverage[form_fit.form.name].stretch) for form_fit in fitted.fits]
    weights = {prediction.name: float(share[0]) for prediction, share in zip(predictions, shares(predictions), strict=True)}
    centres = [float(prediction.centre[0]) for prediction in predictions if weights[prediction.name] > 0.01]
    point = float(centre(predictions)[0])
    return Forecasted(
        point, {level: _interval(predictions, level) for level in LEVELS}, weights, max(centres) - min(centres), coverage,
        float(fitted.noise.sigma[0]),
    )  # fmt: skip


def _interval(predictions: Sequence[Prediction], level: float) -> tuple[float, float]:
    low, high = envelope(predictions, level)
    return float(low[0]), float(high[0])


def _chosen(config: FitConfig) -> list[Form]:
    if config.pins:
        return [pinned(CHINCHILLA, dict(config.pins))]
    return [form for form in FORMS if form.name in config.forms]


def _diverged_centres(trials: Sequence[Trial], minima: Sequence[Valley]) -> list[Fault]:
    """A diverged trial beside the minimum of its budget hides where the minimum is."""
    faults = []
    for valley in minima:
        sizes = sorted({trial.parameters for trial in trials if trial.budget == valley.budget})
        nearest = min(sizes, key=lambda size: abs(np.log(size / valley.parameters)))
        for trial in trials:
            if trial.budget == valley.budget and trial.parameters == nearest and trial.status == "diverged":
                faults.append(Fault("diverged_centre", f"{trial.name}, the size nearest to the minimum, diverged"))
    return faults
