"""Surrogates: a metric as a function of data weights, fitted to the runs of a swarm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from science.mixtures.crossed import crossed
from science.mixtures.law import fit_law

type Predictor = Callable[[np.ndarray], np.ndarray]
"""(mixtures, sources) -> (mixtures,)."""
type FitSurrogate = Callable[[np.ndarray, np.ndarray], Predictor]
FOLDS = 5
RIDGES = np.geomspace(1e-6, 1e2, 33)


def log_linear(weights: np.ndarray, losses: np.ndarray) -> Predictor:
    """The log-linear law alone."""
    return fit_law(weights, losses)


def quadratic(weights: np.ndarray, losses: np.ndarray) -> Predictor:
    """A quadratic in sqrt(w) by ridge regression; the ridge minimizes the leave-one-out error."""
    mean = float(losses.mean())
    features = _squares(weights)
    centre = features.mean(axis=0)
    left, values, right = np.linalg.svd(features - centre, full_matrices=False)
    along = left.T @ (losses - mean)
    best, lowest = RIDGES[0], np.inf
    for ridge in RIDGES:
        shrink = values**2 / (values**2 + ridge)
        leverage = (left**2 @ shrink) + 1 / len(losses)
        error = float((((losses - mean - left @ (shrink * along)) / np.maximum(1 - leverage, 1e-3)) ** 2).mean())
        if error < lowest:
            best, lowest = ridge, error
    slope = right.T @ (values / (values**2 + best) * along)
    return lambda w: mean + (_squares(np.atleast_2d(w)) - centre) @ slope


def _squares(weights: np.ndarray) -> np.ndarray:
    roots = np.sqrt(np.maximum(weights, 0.0))
    rows, columns = np.triu_indices(roots.shape[1])
    return np.concatenate([roots, roots[:, rows] * roots[:, columns]], axis=1)


def regmix(weights: np.ndarray, losses: np.ndarray) -> Predictor:
    """RegMix's gradient-boosted trees (Liu et al. 2024, arXiv 2407.01492), with the settings of its code for few runs."""
    import lightgbm  # loads compiled code; only a swarm needs it

    settings = {
        "objective": "regression", "learning_rate": 0.01, "num_leaves": 31, "min_data_in_leaf": 3, "num_threads": 1,
        "verbosity": -1, "seed": 0, "deterministic": True, "force_row_wise": True,
    }  # fmt: skip
    trees = lightgbm.train(settings, lightgbm.Dataset(weights, losses), num_boost_round=1000)
    return lambda w: np.asarray(trees.predict(np.atleast_2d(w)))


SURROGATES: Mapping[str, FitSurrogate] = {
    "crossed": crossed, "log_linear": log_linear, "quadratic": quadratic, "regmix": regmix
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """A surrogate with its error on runs that it was not fitted to."""

    name: str
    error: float
    """Root mean square over folds."""


def unseen(name: str, weights: np.ndarray, losses: np.ndarray, seed: int) -> np.ndarray:
    """What a surrogate predicts of each run (runs,) when it is fitted without the run's fold."""
    order, predicted = np.random.default_rng(seed).permutation(len(losses)), np.empty(len(losses))
    for fold in range(FOLDS):
        out = order[fold::FOLDS]
        kept = np.setdiff1d(order, out)
        predicted[out] = SURROGATES[name](weights[kept], losses[kept])(weights[out])
    return predicted


def cross_validated(name: str, weights: np.ndarray, losses: np.ndarray, seed: int) -> Checked:
    """The error of a surrogate by folds."""
    return Checked(name, float(np.sqrt(((unseen(name, weights, losses, seed) - losses) ** 2).mean())))
