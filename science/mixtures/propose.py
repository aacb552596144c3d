"""Propose a mixture: the surrogate that predicts unseen runs best, its lowest point within caps, and the gain's interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.mixtures.designs import within
from science.mixtures.surrogates import SURROGATES, Checked, Predictor, cross_validated

CANDIDATES = 2000
STEPS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.004)
ROUNDS = 12
"""Moves at each step size, at most."""
JACKKNIFE = 10


@dataclass(frozen=True)
class ProposalConfig:
    """How a mixture is searched; part of the proposal's identity."""

    surrogates: tuple[str, ...] = ("log_linear", "quadratic")
    draws: int = 40
    """Simulated swarms for the interval."""
    level: float = 0.9
    seed: int = 0
    min_snr: float = 2.0
    """Metrics with less signal to noise may not decide."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.surrogates) - set(SURROGATES))
        if unknown or not self.surrogates:
            raise ValueError(f"surrogates are {self.surrogates}; give some of {', '.join(SURROGATES)}")


@dataclass(frozen=True)
class Proposal:
    """Weights, and how much lower the mean metric should be than at the reference, before any run confirms it."""

    weights: tuple[float, ...]
    gain: float
    low: float
    high: float
    surrogate: dict[str, str]
    """Metric -> the surrogate that predicted it."""
    errors: dict[str, float]
    """Metric -> cross-validated error of that surrogate."""


@dataclass(frozen=True)
class Fitted:
    """The surrogate of every metric that predicts unseen runs best, fitted to all runs."""

    chosen: dict[str, Checked]
    predictors: dict[str, Predictor]

    @property
    def surface(self) -> Predictor:
        """The mean of the metrics, which is minimized."""
        return mean_of(list(self.predictors.values()))


def fit_best(weights: np.ndarray, metrics: Mapping[str, np.ndarray], config: ProposalConfig) -> Fitted:
    """Fit every metric. Raises: ValueError for runs of another number than designs, too few runs, or a source in none."""
    _check(weights, metrics)
    chosen = {
        name: min(
            (cross_validated(of, weights, losses, config.seed) for of in config.surrogates),
            key=lambda surrogate: surrogate.error,
        )
        for name, losses in metrics.items()
    }
    return Fitted(chosen, {name: SURROGATES[chosen[name].name](weights, losses) for name, losses in metrics.items()})


def propose(
    weights: np.ndarray, metrics: Mapping[str, np.ndarray], reference: np.ndarray, limits: np.ndarray, config: ProposalConfig
) -> Proposal:
    """Minimize the unweighted mean of the predicted metrics (lower is better) within caps.

    The best of many predictions is too good by chance. The interval therefore comes from simulated swarms: the fitted surface
    plus noise, fitted and searched again; what those proposals promised beyond what the surface gives is taken off. Its width
    is that of the larger of two standard errors: the simulated swarms' and the jackknife's, which both hold the noise.
    Raises: ValueError for runs of another number than designs.
    """
    of = fit_best(weights, metrics, config)
    chosen, fitted, surface = of.chosen, of.predictors, of.surface
    noise = {name: run_noise(fitted[name](weights) - losses, chosen[name].error) for name, losses in metrics.items()}
    random = np.random.default_rng(config.seed)
    best = lowest(surface, weights, reference, limits, random)
    gain = _gain(surface, reference, best)
    errors = []
    for _ in range(config.draws):
        again = []
        for name in metrics:
            noisy = fitted[name](weights) + random.normal(0, noise[name], len(weights))
            again.append(SURROGATES[chosen[name].name](weights, noisy))
        promised = mean_of(again)
        there = lowest(promised, weights, reference, limits, random)
        errors.append(_gain(promised, reference, there) - _gain(surface, reference, there))
    spread = max(float(np.std(errors)), _folded(weights, metrics, chosen, reference, best, config.seed))
    width = float(special.ndtri(0.5 + config.level / 2)) * spread
    honest = float(gain - np.mean(errors))
    return Proposal(
        tuple(float(share) for share in best), honest, honest - width, honest + width,
        {name: surrogate.name for name, surrogate in chosen.items()},
        {name: surrogate.error for name, surrogate in chosen.items()},
    )  # fmt: skip


def run_noise(residuals: np.ndarray, error: float) -> float:
    """Standard deviation of a run by the fit alone: the residuals are too small for it and the error on unseen runs too large.

    By least squares a residual is e (1 - h) and its unseen error e, h being the leverage; the variance is near their product.
    The unseen error alone also holds what the surface lacks between runs: with it simulated promises were far too good, and
    .14 of the gap too much was taken off the gain on quadratic surfaces.
    """
    return float(np.sqrt(np.sqrt((residuals**2).mean()) * error))


def _folded(
    weights: np.ndarray,
    metrics: Mapping[str, np.ndarray],
    chosen: Mapping[str, Checked],
    reference: np.ndarray,
    best: np.ndarray,
    seed: int,
) -> float:
    """Standard error of the gain at the proposal by a jackknife over tenths of the runs: it sees lack of fit, too."""
    order = np.random.default_rng(seed).permutation(len(weights))
    gains = []
    for fold in range(JACKKNIFE):
        kept = np.setdiff1d(order, order[fold::JACKKNIFE])
        fits = [SURROGATES[chosen[name].name](weights[kept], losses[kept]) for name, losses in metrics.items()]
        gains.append(_gain(mean_of(fits), reference, best))
    return float(np.std(gains) * np.sqrt(JACKKNIFE - 1))


def _check(weights: np.ndarray, metrics: Mapping[str, np.ndarray]) -> None:
    if len(weights) < weights.shape[1] + 2:
        raise ValueError(f"{len(weights)} runs for {weights.shape[1]} sources; give at least {weights.shape[1] + 2}")
    absent = np.flatnonzero(weights.max(axis=0) <= 0)
    if absent.size:
        raise ValueError(f"source number {absent[0]} is in no design: nothing is known of it")
    wrong = {name: len(losses) for name, losses in metrics.items() if len(losses) != len(weights)}
    if wrong or not metrics:
        raise ValueError(f"{len(weights)} designs, and runs by metric {wrong or 'none'}; give one run a design")


def mean_of(predictors: Sequence[Predictor]) -> Predictor:
    """The unweighted mean of metrics."""
    return lambda w: np.mean([predict(w) for predict in predictors], axis=0)


def _gain(surface: Predictor, reference: np.ndarray, weights: np.ndarray) -> float:
    predicted = surface(np.stack([reference, weights]))
    return float(predicted[0] - predicted[1])


def lowest(
    surface: Predictor, designs: np.ndarray, reference: np.ndarray, limits: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """The lowest point within caps: the best of many candidates, then moves of mass between pairs of sources.

    Works for smooth surrogates and for trees, which have no slope.
    """
    mixed = random.dirichlet(np.ones(4), CANDIDATES)
    parents = np.stack([designs[random.integers(0, len(designs), CANDIDATES)] for _ in range(3)] + [
        np.broadcast_to(reference, (CANDIDATES, len(reference)))
    ], axis=1)  # fmt: skip
    candidates = within(np.concatenate([np.einsum("ck,cks->cs", mixed, parents), designs]), limits)
    here = candidates[int(np.argmin(surface(candidates)))]
    value = float(surface(here[None])[0])
    sources = len(here)
    give, take = (side.ravel() for side in np.meshgrid(np.arange(sources), np.arange(sources)))
    rows = np.arange(len(give))
    for step in STEPS:
        for _ in range(ROUNDS):
            moved = np.minimum(np.minimum(step, here[give]), np.maximum(limits[take] - here[take], 0.0))
            tried = np.repeat(here[None], len(give), axis=0)
            tried[rows, give] -= moved
            tried[rows, take] += moved
            predicted = surface(tried)
            at = int(np.argmin(predicted))
            if predicted[at] >= value - 1e-12:
                break
            here, value = tried[at], float(predicted[at])
    return here


def regmix_proposal(
    weights: np.ndarray,
    metrics: Mapping[str, np.ndarray],
    prior: np.ndarray,
    limits: np.ndarray,
    seed: int,
    candidates: int = 20_000,
) -> np.ndarray:
    """The peer: RegMix's trees and its search, the mean of the 100 best of many draws around the prior."""
    surface = mean_of([SURROGATES["regmix"](weights, losses) for losses in metrics.values()])
    random = np.random.default_rng(seed)
    spread = random.choice([0.5, 1.0, 4.0], candidates)[:, None] * len(prior) * prior
    drawn = random.standard_gamma(spread) + 1e-12
    tried = within(drawn, limits)
    return tried[np.argsort(surface(tried))[:100]].mean(axis=0)
