"""Propose by a Gaussian process and expected improvement: the lab's own proposer, in numpy.

Matern kernel of smoothness 5/2 with a length for each dimension; lengths and noise by the largest marginal likelihood over a
grid. Expected improvement is over the lowest predicted mean and not the lowest measured loss, because measured losses are
noisy (Gramacy and Lee 2011, arXiv 1004.4027). Several points of a round are chosen one after the other, each as if its
predicted loss had been measured (the kriging believer of Ginsbourger et al. 2010).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special

from science.search.space import PlacedTrials

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
NOISES = (1e-4, 1e-2, 0.1)
"""Variance of a measurement as a share of the variance of the surface."""
CANDIDATES = 256
NEAR = 64
"""Candidates beside the best point, at most a tenth of the box away."""
LEAST_ENDED = 3
"""With fewer trials that ended no surface is fitted, and the box is filled evenly."""


@dataclass(frozen=True)
class Surface:
    """A Gaussian process that was fitted to losses of mean 0 and variance 1."""

    places: np.ndarray
    lengths: np.ndarray
    noise: float
    values: np.ndarray

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the surface, without noise of a measurement."""
        covariance = _matern(self.places, self.places, self.lengths) + self.noise * np.eye(len(self.places))
        across = _matern(places, self.places, self.lengths)
        solved = np.linalg.solve(covariance, np.concatenate([self.values[:, None], across.T], axis=1))
        variance = 1 - np.einsum("ij,ji->i", across, solved[:, 1:])
        return across @ solved[:, 0], np.sqrt(np.maximum(variance, 1e-12))


def propose_gaussian(trials: PlacedTrials, count: int, seed: int) -> np.ndarray:
    """Places of the next trials, (count, dimensions)."""
    from scipy.stats import qmc  # half a second; only a proposal needs it

    dimensions = trials.places.shape[1]
    random = np.random.default_rng(seed)
    sobol = qmc.Sobol(dimensions, rng=random)
    if int(trials.feasible.sum()) < LEAST_ENDED:
        return _apart(trials.places, sobol.random(CANDIDATES), count)
    cut = np.where(trials.feasible, np.minimum(trials.losses, trials.worst), trials.worst)
    scale = max(float(cut.std()), 1e-12)
    surface = fitted(trials.places, (cut - cut.mean()) / scale)
    chosen: list[np.ndarray] = []
    for _ in range(count):
        at_tried, _ = surface.at(surface.places)
        best = surface.places[int(np.argmin(at_tried))]
        near = np.clip(best + random.uniform(-0.1, 0.1, (NEAR, dimensions)), 0, 1)
        candidates = np.concatenate([sobol.random(CANDIDATES), near])
        mean, spread = surface.at(candidates)
        gain = _expected_improvement(mean, spread, float(at_tried.min()))
        at = int(np.argmax(gain))
        chosen.append(candidates[at])
        places, values = np.vstack([surface.places, candidates[at]]), np.append(surface.values, mean[at])
        surface = Surface(places, surface.lengths, surface.noise, values)
    return np.stack(chosen)


def fitted(places: np.ndarray, values: np.ndarray) -> Surface:
    """The process of the largest marginal likelihood over the grid of lengths and noises."""
    grid = product(product(LENGTHS, repeat=places.shape[1]), NOISES)
    surfaces = [Surface(places, np.array(lengths), noise, values) for lengths, noise in grid]
    return max(surfaces, key=_likelihood)


def _likelihood(surface: Surface) -> float:
    """Log marginal likelihood with the scale of the surface integrated out at its best value, up to a constant."""
    count = len(surface.values)
    covariance = _matern(surface.places, surface.places, surface.lengths) + surface.noise * np.eye(count)
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, surface.values)
    return -0.5 * count * float(np.log(white @ white / count)) - float(np.log(np.diag(lower)).sum())


def _matern(one: np.ndarray, other: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    distance = np.sqrt((((one[:, None] - other[None]) / lengths) ** 2).sum(axis=-1))
    scaled = np.sqrt(5.0) * distance
    return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)


def _expected_improvement(mean: np.ndarray, spread: np.ndarray, best: float) -> np.ndarray:
    """Jones, Schonlau and Welch 1998, equation 15, for a minimum."""
    z = (best - mean) / spread
    return spread * (z * special.ndtr(z) + np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def _apart(places: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Candidates that lie farthest from all points, one after the other."""
    points = places
    for _ in range(count):
        distance = np.sqrt(((candidates[:, None] - points[None]) ** 2).sum(axis=-1)).min(axis=1)
        points = np.vstack([points, candidates[int(np.argmax(distance))]])
    return points[len(places) :]
