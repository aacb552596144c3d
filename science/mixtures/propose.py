"""Propose a mixture: the lowest point within caps of the mean of the fitted metrics, and the gain with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.mixtures.crossed import Crossed, crossed
from science.mixtures.designs import within
from science.mixtures.surrogates import SURROGATES, Predictor

CANDIDATES = 2000
STEPS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.004)
ROUNDS = 12
"""Moves at each step size, at most."""


@dataclass(frozen=True)
class ProposalConfig:
    """How a mixture is searched; part of the proposal's identity."""

    level: float = 0.9
    seed: int = 0
    min_snr: float = 2.0
    """Metrics with less signal to noise may not decide."""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level is {self.level}; give a share of intervals that hold, above 0 and below 1, such as 0.9")


@dataclass(frozen=True)
class Proposal:
    """Weights, and how much lower the mean metric should be than at the reference, before any run confirms it."""

    weights: tuple[float, ...]
    gain: float
    low: float
    high: float
    noise: dict[str, float]
    """Metric -> standard deviation of a run by its fit."""


def fit_metrics(weights: np.ndarray, metrics: Mapping[str, np.ndarray]) -> dict[str, Crossed]:
    """Fit every metric. Raises: ValueError for runs of another number than designs, too few runs, or a source in none."""
    _check(weights, metrics)
    return {name: crossed(weights, losses) for name, losses in metrics.items()}


def propose(
    weights: np.ndarray, metrics: Mapping[str, np.ndarray], reference: np.ndarray, limits: np.ndarray, config: ProposalConfig
) -> Proposal:
    """Minimize the unweighted mean of the fitted metrics (lower is better) within caps.

    The best of many predictions is little too good by chance: each is the mean of what the runs and the priors leave possible,
    so a mixture that few runs are near promises little. Raises: ValueError for runs of another number than designs.
    """
    fitted = fit_metrics(weights, metrics)
    surface = mean_of(list(fitted.values()))
    best = lowest(surface, weights, reference, limits, np.random.default_rng(config.seed))
    predicted = surface(np.stack([reference, best]))
    gain = float(predicted[0] - predicted[1])
    half = gain_error(list(fitted.values()), reference, best) * _quantile(fitted, config.level)
    noise = {name: each.noise for name, each in fitted.items()}
    return Proposal(tuple(float(share) for share in best), gain, gain - half, gain + half, noise)


def gain_error(fitted: Sequence[Crossed], first: np.ndarray, second: np.ndarray) -> float:
    """Standard error of the difference of the mean metric between two mixtures.

    Errors of two metrics are as correlated as what their fits leave of the same runs, since one seed moves both.
    """
    errors = np.stack([each.errors / np.linalg.norm(each.errors) for each in fitted])
    deviations = np.array([each.deviation(first, second) for each in fitted])
    return float(np.sqrt(max(deviations @ (errors @ errors.T) @ deviations, 0.0))) / len(fitted)


def _quantile(fitted: Mapping[str, Crossed], level: float) -> float:
    """Student's t: the noise is estimated."""
    return float(special.stdtrit(min(each.degrees for each in fitted.values()), 0.5 + level / 2))


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
