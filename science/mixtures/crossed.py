"""A metric over mixtures: the log-linear law, and what it leaves as crossed terms of the sources.

metric = law(w) + sum b_i sqrt(w_i) + sum b_ij sqrt(w_i w_j) + noise, i < j. The coefficients b_i have a normal prior of one
width, the b_ij of another: kriging with a trend (Rasmussen and Williams 2006, section 2.7). Both widths are those of the
largest restricted likelihood on a grid that holds 0, where the law stands alone. Errors of predictions follow from it. The
slopes of the law have a prior, too, which is weighed with the noise that the law alone leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from science.mixtures.law import Law, fit_law, prior_precision, refit

VARIANCES = (0.0, *np.geomspace(1e-2, 1e6, 17))
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

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        return self.law(weights) + (scaled(weights, self.deviations) - self.centre) @ self._coefficients

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return self.terms.T @ (self.whitening.T @ self.errors)

    @property
    def degrees(self) -> float:
        """Degrees of freedom that the noise is known by: runs less the law's parameters and what the crossed terms take up."""
        return max(float((self.whitening**2).sum()) - len(self.law.parameters) + 1, 1.0)

    @property
    def noise(self) -> float:
        """Standard deviation of a run."""
        return _noise(self.errors, self.law)

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


def _noise(errors: np.ndarray, law: Law) -> float:
    return float(np.sqrt(errors @ errors / _degrees(errors, law)))


def _degrees(errors: np.ndarray, law: Law) -> int:
    """Runs less the law's parameters; weights sum to 1, so the slopes are one less than the sources."""
    return max(len(errors) - len(law.parameters) + 1, 1)


def crossed(weights: np.ndarray, losses: np.ndarray) -> Crossed:
    """Fit (runs, sources) and (runs,): the law alone, then the variances and with them the law again."""
    alone = fit_law(weights, losses)
    precision = prior_precision(_noise(losses - alone(weights), alone), weights.shape[1])
    kernels = [each @ each.T for each in (of - of.mean(axis=0) for of in terms_of(weights))]
    at, law = _most_likely(weights, losses, kernels, alone, precision)
    variances = [float(VARIANCES[place]) for place in at]
    deviations = tuple(float(np.sqrt(variance)) for variance in variances)
    terms, whitening = scaled(weights, deviations), _whitening(kernels, variances)
    slopes, centre = whitening @ law.derivatives(weights), terms.mean(axis=0)
    errors = whitening @ (losses - law(weights))
    return Crossed(law, deviations, terms - centre, centre, whitening, slopes, _information(slopes, precision), errors)


def _most_likely(
    weights: np.ndarray, losses: np.ndarray, kernels: Sequence[np.ndarray], alone: Law, precision: np.ndarray
) -> tuple[tuple[int, ...], Law]:
    """Places on `VARIANCES` and the law there: the best equal places, then moves of one at a time until none is better."""
    known: dict[tuple[int, ...], tuple[float, Law]] = {}

    def deviance(at: tuple[int, ...], near: Law) -> float:
        if at not in known:
            known[at] = _deviance(weights, losses, _whitening(kernels, [VARIANCES[place] for place in at]), near, precision)
        return known[at][0]

    for place in range(0, len(VARIANCES), 2):
        deviance((place,) * len(kernels), alone)
    best = min(known, key=lambda at: known[at][0])
    while True:
        last = len(VARIANCES) - 1
        moved = [
            (*best[:number], min(max(best[number] + move, 0), last), *best[number + 1 :])
            for number in range(len(kernels))
            for move in (*MOVES, -last)
        ]
        lower = min(moved, key=lambda at: deviance(at, known[best][1]))
        if known[lower][0] >= known[best][0] - 1e-9:
            return best, known[best][1]
        best = lower


def _whitening(kernels: Sequence[np.ndarray], variances: Sequence[float]) -> np.ndarray:
    """The inverse root of the covariance of runs, in variances of a run."""
    runs = len(kernels[0])
    covariance = np.eye(runs) + sum(variance * kernel for variance, kernel in zip(variances, kernels, strict=True))
    return np.asarray(linalg.solve_triangular(np.linalg.cholesky(covariance), np.eye(runs), lower=True))


def _deviance(
    weights: np.ndarray, losses: np.ndarray, whitening: np.ndarray, near: Law, precision: np.ndarray
) -> tuple[float, Law]:
    """Minus twice the restricted log-likelihood up to a constant, the variance of a run at its best; and the law there."""
    law = refit(near, weights, losses, whitening, precision)
    errors = whitening @ (losses - law(weights))
    information = _information(whitening @ law.derivatives(weights), precision)
    logs = -2 * float(np.log(np.diag(whitening)).sum()) + float(np.linalg.slogdet(information)[1])
    return _degrees(errors, law) * float(np.log(errors @ errors)) + logs, law


def _information(slopes: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Of the law's parameters. A trace of all keeps it regular: weights sum to 1, so one direction of the slopes is empty."""
    seen = slopes.T @ slopes + np.diag(precision)
    return seen + 1e-12 * np.trace(seen) * np.eye(len(seen))
