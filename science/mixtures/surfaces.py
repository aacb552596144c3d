"""Known response surfaces, to measure regret of a search: three metrics, each a function of the weights."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from science.mixtures.propose import lowest, mean_of
from science.mixtures.surrogates import Predictor

type Kind = Literal["log_linear", "quadratic", "interaction", "dense"]
METRICS = 3
INTERACTIONS = 10
"""Pairs of sources that interact; in the dense kind all do, each as strongly."""


@dataclass(frozen=True)
class KnownSurface:
    """Metrics by name, and the weights of the lowest mean within caps."""

    metrics: dict[str, Predictor]
    prior: np.ndarray
    limits: np.ndarray
    optimum: np.ndarray

    @property
    def gap(self) -> float:
        """Mean metric at the prior less that at the optimum."""
        means = self.mean(np.stack([self.prior, self.optimum]))
        return float(means[0] - means[1])

    def mean(self, weights: np.ndarray) -> np.ndarray:
        return mean_of(list(self.metrics.values()))(weights)

    def regret(self, weights: np.ndarray) -> float:
        """Share of the gap that a proposal leaves; above 1 it is worse than the prior."""
        means = self.mean(np.stack([weights, self.optimum]))
        return float(means[0] - means[1]) / self.gap


def known_surface(kind: Kind, sources: int, seed: int) -> KnownSurface:
    """A random surface: each metric likes some sources and suffers from others; sizes of sources differ by a factor of 20."""
    random = np.random.default_rng([seed, sources])
    prior = np.exp(random.uniform(0, 3, sources))
    prior /= prior.sum()
    limits = np.minimum(1.0, np.maximum(4 * prior, 2.0 / sources))
    metrics = {f"m{number}": _metric(kind, sources, random) for number in range(METRICS)}
    mean = mean_of(list(metrics.values()))
    starts = random.dirichlet(np.full(sources, 0.5), 200)
    minima = [lowest(mean, starts, prior, limits, np.random.default_rng(number)) for number in range(3)]
    return KnownSurface(metrics, prior, limits, min(minima, key=lambda weights: float(mean(weights[None])[0])))


def _metric(kind: Kind, sources: int, random: np.random.Generator) -> Predictor:
    slopes = random.normal(0, 1.2, sources)
    if kind == "log_linear":
        return lambda w: 1.0 + np.exp(-1.5 + np.atleast_2d(w) @ slopes)
    best = random.dirichlet(np.ones(sources))
    bend = random.uniform(0.3, 1.0, sources)

    def bowl(w: np.ndarray) -> np.ndarray:
        return 1.0 + 0.3 * ((np.sqrt(np.atleast_2d(w)) - np.sqrt(best)) ** 2 @ bend)

    if kind == "quadratic":
        return bowl
    if kind == "dense":
        first, second = np.triu_indices(sources, 1)
    else:
        first = random.integers(0, sources, INTERACTIONS)
        second = (first + random.integers(1, sources, INTERACTIONS)) % sources
    strength = random.normal(0, 0.15, len(first))

    def crossed(w: np.ndarray) -> np.ndarray:
        roots = np.sqrt(np.atleast_2d(w))
        return 1.0 + np.exp(-1.5 + np.atleast_2d(w) @ slopes) + (roots[:, first] * roots[:, second]) @ strength

    return crossed
