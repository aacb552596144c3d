"""The joint test of several forecasts from one fit: whether their errors together are what the forecasts said of them.

Errors of runs that one law forecasts are dependent: its own error is in all of them. So each form gives a multivariate t over
all runs, and the joint forecast is the mixture of the forms by the same weights as the interval of one run. The squared errors
in units of its scale matrix are compared with draws from it; with one form alone that is an F test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from science.laws.fit import Fit

DRAWS = 100_000
BOUNDS = (0.01, 0.99)
"""A joint forecast fails outside: below, errors are too large; above, they are too small for the noise that it states."""


@dataclass(frozen=True)
class Joint:
    """P values of the squared errors of runs; each is the share of the forecast's own draws that have larger ones."""

    runs: int
    statistic: float
    """Squared errors in units of the forecast's scale matrix, divided by the number of runs; F where there is one form."""
    p: float
    budgets: float
    """P value of the means of runs that differ only in seeds, one mean each: is the law right?"""
    seeds: float | None
    """P value of the differences between such runs: is their noise that of the trials? None where no two are alike."""
    own_noise: float | None
    """P value of the means if the noise of a run is what these runs show, and not what the trials show."""

    @property
    def holds(self) -> bool:
        return BOUNDS[0] < self.p < BOUNDS[1]


@dataclass(frozen=True)
class JointForecast:
    """The mixture of the forms over k runs. Of each form: weight, centre, error of the law, noise, degrees of freedom."""

    weights: np.ndarray
    """(forms,), summing to 1."""
    centres: np.ndarray
    """(forms, k)."""
    errors: np.ndarray
    """(forms, k, k): covariance of the law's errors, which runs share."""
    noises: np.ndarray
    """(forms, k): variance of each run's own noise."""
    freedoms: np.ndarray
    """(forms,)."""
    groups: np.ndarray
    """(k,) integers; runs of one group differ only in seeds."""

    @property
    def point(self) -> np.ndarray:
        """The mean of the forms' centres, (k,)."""
        return self.weights @ self.centres

    def scale(self, noises: np.ndarray | None = None) -> np.ndarray:
        """(k, k): the forms' scale matrices and what their centres differ by. `noises` (k,) replaces the forms' own."""
        apart, size = self.centres - self.point, len(self.groups)
        own = np.eye(size) * np.broadcast_to(self.noises if noises is None else noises, self.noises.shape)[:, :, None]
        return np.einsum("f,fij->ij", self.weights, self.errors + own + apart[:, :, None] * apart[:, None, :])

    def draws(self, random: np.random.Generator, count: int, noise: tuple[float, int] | None = None) -> np.ndarray:
        """Losses of all runs, (count, k). `noise`, a variance with its degrees of freedom, replaces that of the forms."""
        forms = random.choice(len(self.weights), count, p=self.weights)
        size = len(self.groups)
        roots = np.stack([_root(each) for each in self.errors])[forms]
        shared = np.einsum("bij,bj->bi", roots, random.normal(size=(count, size)))
        freedom = self.freedoms[forms]
        wide = np.sqrt(freedom / random.chisquare(freedom))[:, None]
        own = random.normal(size=(count, size))
        if noise is None:
            return self.centres[forms] + wide * (shared + np.sqrt(self.noises)[forms] * own)
        variance = noise[0] * noise[1] / random.chisquare(noise[1], count)
        return self.centres[forms] + wide * shared + np.sqrt(variance)[:, None] * own

    def test(self, measured: Sequence[float], count: int = DRAWS, seed: int = 0) -> Joint:
        """Compare the measured losses of all runs with draws of the forecast."""
        random, losses = np.random.default_rng(seed), np.array(measured, float)
        means, contrasts = averages(self.groups), differences(self.groups)
        drawn = self.draws(random, count)
        every = np.eye(len(losses))
        seeds = self._p(contrasts, losses, drawn, self.scale()) if len(contrasts) else None
        own = None
        if len(contrasts):
            variance = float(((contrasts @ losses) ** 2).mean())
            again = self.draws(random, count, (variance, len(contrasts)))
            own = self._p(means, losses, again, self.scale(np.full(len(losses), variance)))
        statistic = float(squares(every, losses - self.point, self.scale())[0]) / len(losses)
        p, budgets = (self._p(rows, losses, drawn, self.scale()) for rows in (every, means))
        return Joint(len(losses), statistic, p, budgets, seeds, own)

    def _p(self, rows: np.ndarray, losses: np.ndarray, drawn: np.ndarray, scale: np.ndarray) -> float:
        """Share of draws whose combinations `rows` of the runs are further off than those measured."""
        own, others = (squares(rows, values - self.point, scale) for values in (losses, drawn))
        return float((1 + (others >= own[0]).sum()) / (1 + len(others)))


def joint_forecast(
    fits: Sequence[Fit], parameters: Sequence[float], tokens: Sequence[float], stretches: Mapping[str, Sequence[float]]
) -> JointForecast:
    """The joint forecast of runs by (parameters, tokens) from the first data set of each fit.

    `stretches` are those of the frozen forecasts: by form, one factor on the scale of each run.
    """
    sizes, read = np.array(parameters, float), np.array(tokens, float)
    factors = np.array([stretches[each.form.name] for each in fits], float)
    weights = np.maximum(np.array([each.lack_of_fit[0] for each in fits]), 1e-12)
    laws = np.stack([each.law_covariance(sizes, read) for each in fits])
    _, groups = np.unique(np.stack([sizes, read]), axis=1, return_inverse=True)
    return JointForecast(
        weights / weights.sum(),
        np.stack([each.losses(sizes, read)[0] for each in fits]),
        factors[:, :, None] * laws * factors[:, None, :],
        factors**2 * np.array([each.spread[0] for each in fits])[:, None] ** 2,
        np.array([each.freedom[0] for each in fits]),
        groups.reshape(-1),
    )


def averages(groups: np.ndarray) -> np.ndarray:
    """Rows that average the runs of each group."""
    members = groups == np.unique(groups)[:, None]
    return members / members.sum(axis=1, keepdims=True)


def differences(groups: np.ndarray) -> np.ndarray:
    """Orthonormal rows that span the differences of runs within groups (Helmert's)."""
    rows = []
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        for count in range(1, len(places)):
            row = np.zeros(len(groups))
            row[places[:count]], row[places[count]] = -1.0, count
            rows.append(row / np.sqrt(count * (count + 1)))
    return np.array(rows).reshape(-1, len(groups))


def squares(rows: np.ndarray, errors: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Squared combinations of errors in units of their scale matrix; `errors` (k,) or (count, k)."""
    combined = np.atleast_2d(errors) @ rows.T
    return np.einsum("bi,bi->b", combined, np.linalg.solve(rows @ scale @ rows.T, combined.T).T)


def _root(covariance: np.ndarray) -> np.ndarray:
    """A matrix whose product with its transpose is the covariance, which may be singular: equal runs share one error."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
