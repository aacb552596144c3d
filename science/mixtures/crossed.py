"""A metric over mixtures: the log-linear law, and what it leaves as crossed terms of the sources.

metric = law(w) + sum b_i sqrt(w_i) + sum b_ij sqrt(w_i w_j) + noise, i < j. The coefficients b_i have a normal prior of one
width, the b_ij of another, and the slopes of the law of a third: kriging with a trend (Rasmussen and Williams 2006, section
2.7). The widths are those of the largest restricted likelihood on a grid. For crossed terms it holds 0: the law stands alone.
Errors of predictions follow from the joint normal.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from science.mixtures.law import BEND, Law, fit_law, refit

VARIANCES = (0.0, *np.geomspace(1e-2, 1e8, 21))
"""Prior variances of coefficients, in variances of a run."""
MOVES = (-4, -2, -1, 1, 2, 4)
"""Steps on the grid from the best pair so far."""


def terms_of(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sqrt(w_i) of all sources, and sqrt(w_i w_j) of all pairs: (mixtures, sources) and (mixtures, pairs)."""
    roots = np.sqrt(np.maximum(np.atleast_2d(weights), 0.0))
    first, second = np.triu_indices(roots.shape[1], 1)
    return roots, roots[:, first] * roots[:, second]


@dataclass(frozen=True)
class Crossed:
    """A fitted metric. A call gives its mean (mixtures,) at weights (mixtures, sources)."""

    law: Law
    deviations: tuple[float, ...]
    """Prior standard deviation of the coefficients of each of `terms_of`, in that of a run."""
    terms: np.ndarray
    """(runs, terms): times their deviations, less `centre`, their mean over the runs."""
    centre: np.ndarray
    whitening: np.ndarray
    """(runs, runs): makes the errors of runs independent, of one variance."""
    slopes: np.ndarray
    """(runs, parameters): whitened derivatives of the law at the runs."""
    information: np.ndarray
    """(parameters, parameters): of the law's parameters, in precisions of a run."""
    errors: np.ndarray
    """(runs,): whitened residuals of the law."""
    penalty: float
    """Squares of the slopes in units of their prior, in variances of a run."""

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        return self.law(weights) + (scaled(weights, self.deviations) - self.centre) @ self._coefficients

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return self.terms.T @ (self.whitening.T @ self.errors)

    @property
    def degrees(self) -> float:
        """Degrees of freedom that the noise is known by: runs less what the law and the crossed terms take up."""
        taken = np.trace(np.linalg.solve(self.information, self.slopes.T @ self.slopes))
        return max(float((self.whitening**2).sum() - taken), 1.0)

    @property
    def noise(self) -> float:
        """Standard deviation of a run."""
        return float(np.sqrt((self.errors @ self.errors + self.penalty) / (len(self.errors) - 2)))

    def deviation(self, first: np.ndarray, second: np.ndarray) -> float:
        """Standard error of the difference of the metric between two mixtures (sources,), at the fitted variances."""
        apart = (scaled(first, self.deviations) - scaled(second, self.deviations))[0]
        known = self.whitening @ (self.terms @ apart)
        trend = (self.law.derivatives(first) - self.law.derivatives(second))[0] - self.slopes.T @ known
        left = apart @ apart - known @ known + trend @ np.linalg.solve(self.information, trend)
        return self.noise * float(np.sqrt(max(left, 0.0)))


def scaled(weights: np.ndarray, deviations: Sequence[float]) -> np.ndarray:
    """`terms_of` side by side, each times the deviation of its coefficients: (mixtures, terms)."""
    return np.concatenate([each * by for each, by in zip(terms_of(weights), deviations, strict=True)], axis=1)


def crossed(weights: np.ndarray, losses: np.ndarray) -> Crossed:
    """Fit (runs, sources) and (runs,): the law alone, then the widths of the priors and with them the law again."""
    alone = fit_law(weights, losses)
    kernels = [each @ each.T for each in (of - of.mean(axis=0) for of in terms_of(weights))]
    best = _most_likely(weights, losses, kernels, alone)
    terms = scaled(weights, best.deviations)
    slopes, centre = best.whitening @ best.law.derivatives(weights), terms.mean(axis=0)
    errors = best.whitening @ (losses - best.law(weights))
    information = _information(slopes, best.precision)
    return Crossed(best.law, best.deviations, terms - centre, centre, best.whitening, slopes, information, errors, best.penalty)


@dataclass(frozen=True)
class _Tried:
    """The law under priors of given widths. `deviance` is minus twice the restricted log-likelihood, up to a constant."""

    deviations: tuple[float, ...]
    precision: np.ndarray
    whitening: np.ndarray
    law: Law
    penalty: float
    deviance: float


def _most_likely(weights: np.ndarray, losses: np.ndarray, kernels: Sequence[np.ndarray], alone: Law) -> _Tried:
    """The best places on `VARIANCES` of each of `terms_of` and of the slopes: of a coarse grid, then moves of one at a time."""
    known: dict[tuple[int, ...], _Tried] = {}
    last, errors = len(VARIANCES) - 1, losses - alone(weights)
    bend = float(losses.var() * (errors @ errors)) / max(len(losses) - weights.shape[1] - 1, 1) / BEND**2

    def deviance(at: tuple[int, ...], near: Law) -> float:
        if at not in known:
            known[at] = _tried(weights, losses, kernels, [VARIANCES[place] for place in at], near, bend)
        return known[at].deviance

    for crossing, slope in itertools.product(range(0, last + 1, 3), range(last // 2, last + 1, 3)):
        deviance((*(crossing,) * len(kernels), slope), alone)
    best = min(known, key=lambda at: known[at].deviance)
    while True:
        moved = [
            (*best[:number], min(max(best[number] + move, number == len(kernels)), last), *best[number + 1 :])
            for number in range(len(best))
            for move in (*MOVES, -last)
        ]
        lower = min(moved, key=lambda at: deviance(at, known[best].law))
        if known[lower].deviance >= known[best].deviance - 1e-9:
            return known[best]
        best = lower


def _whitening(kernels: Sequence[np.ndarray], variances: Sequence[float]) -> np.ndarray:
    """The inverse root of the covariance of runs, in variances of a run."""
    runs = len(kernels[0])
    covariance = np.eye(runs) + sum(variance * kernel for variance, kernel in zip(variances, kernels, strict=True))
    return np.asarray(linalg.solve_triangular(np.linalg.cholesky(covariance), np.eye(runs), lower=True))


def _tried(
    weights: np.ndarray, losses: np.ndarray, kernels: Sequence[np.ndarray], variances: Sequence[float], near: Law, bend: float
) -> _Tried:
    """The law under prior variances of `terms_of` and of the slopes, and the prior precision of the bend."""
    *of_terms, of_slopes = variances
    whitening = _whitening(kernels, of_terms)
    precision = np.array([0.0, bend] + [1 / of_slopes] * weights.shape[1])
    law = refit(near, weights, losses, whitening, precision)
    errors = whitening @ (losses - law(weights))
    penalty = float(precision[2:] @ law.parameters[2:] ** 2)
    information = _information(whitening @ law.derivatives(weights), precision)
    logs = -2 * float(np.log(np.diag(whitening)).sum()) + float(np.linalg.slogdet(information)[1])
    logs -= float(np.log(precision[2:]).sum())
    deviance = (len(losses) - 2) * float(np.log(errors @ errors + penalty)) + logs
    return _Tried(tuple(float(np.sqrt(variance)) for variance in of_terms), precision, whitening, law, penalty, deviance)


def _information(slopes: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Of the law's parameters, in precisions of a run. A trace of all keeps it regular where a metric is flat."""
    seen = slopes.T @ slopes + np.diag(precision)
    return seen + 1e-12 * np.trace(seen) * np.eye(len(seen))
