"""Fit a form to losses: grid of starts, converged robust minimum, covariance, lack-of-fit test against repeats."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.descent import Residuals, descend, jacobian
from science.laws.forms import Form, Reference

BEST_STARTS = 6
"""Starts of the grid that are followed to the end: those of the lowest objective after a few steps."""
HUBER_NOISES = 3.0
"""Where Huber's loss turns linear, in standard deviations of repeats."""
LEAST_DELTA = 1e-3
"""And never below this share of the loss: Hoffmann's 1e-3 of ln L."""


@dataclass(frozen=True)
class Points:
    """Losses at sizes and token counts; several data sets of one design stand in rows."""

    parameters: np.ndarray
    tokens: np.ndarray
    losses: np.ndarray
    """(data sets, points), nats a token or another loss above 0."""
    groups: np.ndarray
    """(points,) integers; points of one group are repeats that differ in seeds only."""
    budgets: np.ndarray
    """(points,) training FLOPs; the sweep's budget and not the counted FLOPs, so that equal budgets are equal numbers."""

    def __post_init__(self) -> None:
        if not (self.losses > 0).all():
            raise ValueError(f"losses must be above 0; the smallest is {self.losses.min()}")
        if self.losses.ndim != 2 or self.losses.shape[1] != len(self.parameters):
            raise ValueError(f"losses have shape {self.losses.shape}; it must be (data sets, {len(self.parameters)} points)")

    @property
    def reference(self) -> Reference:
        return Reference.of(self.parameters, self.tokens)

    def with_losses(self, losses: np.ndarray) -> "Points":
        """The same design with other losses."""
        return Points(self.parameters, self.tokens, np.atleast_2d(losses), self.groups, self.budgets)

    def chosen(self, mask: np.ndarray) -> "Points":
        """Some of the points."""
        return Points(self.parameters[mask], self.tokens[mask], self.losses[:, mask], self.groups[mask], self.budgets[mask])


@dataclass(frozen=True)
class Noise:
    """The spread of repeats in the unit of the loss, (data sets,)."""

    sigma: np.ndarray
    freedom: int


@dataclass(frozen=True)
class Fit:
    """A form fitted to every data set of some points."""

    form: Form
    reference: Reference
    parameters: np.ndarray
    """(data sets, parameters)."""
    covariance: np.ndarray
    """Of the parameters, scaled by `spread`."""
    spread: np.ndarray
    """Robust standard deviation of the residuals of the loss, lack of fit included; (data sets,)."""
    freedom: np.ndarray
    """Degrees of freedom of the spread: points less the parameters that the points decide; (data sets,)."""
    lack_of_fit: np.ndarray
    """P value of the F test of residuals against repeats; 1 without repeats; (data sets,)."""
    converged: np.ndarray

    def losses(self, parameters: np.ndarray | float, tokens: np.ndarray | float) -> np.ndarray:
        """The law at further points, (data sets, points)."""
        return np.exp(self.form.log_loss(self.parameters, *self.reference.logs(parameters, tokens)))

    def joint_covariance(self, parameters: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Covariance of the losses of new runs of the first data set: errors of the law, shared, and the noise of each run."""
        law = self.law_covariance(parameters, tokens)
        return law + np.eye(len(law)) * self.spread[0] ** 2

    def law_covariance(self, parameters: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Covariance of the law's errors at several points, for the first data set."""
        n, d = self.reference.logs(parameters, tokens)
        slopes = jacobian(lambda p: np.exp(self.form.log_loss(p, n, d)), self.parameters[:1])[0]
        return slopes @ self.covariance[0] @ slopes.T

    def standard_errors(self, parameters: float, tokens: float) -> np.ndarray:
        """Standard error of the law at one point by the delta method, without the noise of a new run; (data sets,)."""
        n, d = self.reference.logs(parameters, tokens)
        slopes = jacobian(lambda p: np.exp(self.form.log_loss(p, n, d)), self.parameters)[:, 0]
        return np.sqrt(np.maximum(np.einsum("bp,bpq,bq->b", slopes, self.covariance, slopes), 0.0))


def repeat_noise(points: Points) -> Noise | None:
    """The pooled spread of repeats; None without any."""
    square, freedom = np.zeros(len(points.losses)), 0
    for group in np.unique(points.groups):
        members = points.losses[:, points.groups == group]
        square += ((members - members.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        freedom += members.shape[1] - 1
    return Noise(np.sqrt(square / freedom), freedom) if freedom else None


def fit(form: Form, points: Points, start: np.ndarray | None = None, delta: float | None = None) -> Fit:
    """Fit a form to each data set. `start` (data sets or one, parameters) replaces the grid, for refits of simulated data.

    Residuals are of the loss and not of its logarithm: noise of constant size in nats is then of one size in all points, and
    the right form covered .89 of new runs at 10 times the budget where residuals of ln L covered .84.
    `delta` is where Huber's loss turns linear, as a share of the mean loss; None: three deviations of repeats, at least 1e-3.
    """
    noise = repeat_noise(points)
    typical = points.losses.mean(axis=1)
    scale = noise.sigma if noise is not None else LEAST_DELTA * typical
    edge = np.maximum(HUBER_NOISES * scale, LEAST_DELTA * typical) if delta is None else delta * typical
    prior = [(form.names.index(name), *values) for name, values in form.priors.items()]
    starts = _grid(form, points, scale, edge, prior) if start is None else np.broadcast_to(
        start, (len(points.losses), len(form.names))
    )  # fmt: skip
    residuals, deltas = _problem(form, points, np.arange(len(points.losses)), scale, edge, prior)
    minimum = descend(residuals, starts, deltas)
    return _described(form, points, minimum.parameters, minimum.converged, noise, scale, edge, prior)


def _problem(
    form: Form, points: Points, rows: np.ndarray, scale: np.ndarray, edge: np.ndarray, prior: list[tuple[int, float, float]]
) -> tuple[Residuals, np.ndarray]:
    """Residuals of the data sets `rows`, the priors as further points, and where Huber's loss turns linear."""
    n, d = points.reference.logs(points.parameters, points.tokens)
    measured = points.losses[rows]
    factor = scale[rows][:, None]

    def residuals(p: np.ndarray) -> np.ndarray:
        terms = [(p[:, [index]] - centre) / width * factor for index, centre, width in prior]
        return np.concatenate([np.exp(form.log_loss(p, n, d)) - measured, *terms], axis=1)

    plain = np.repeat(edge[rows][:, None], measured.shape[1], axis=1)
    return residuals, np.concatenate([plain, np.full((len(rows), len(prior)), np.inf)], axis=1)


def _grid(form: Form, points: Points, scale: np.ndarray, edge: np.ndarray, prior: list[tuple[int, float, float]]) -> np.ndarray:
    """For each data set, the start of the grid that leads to the lowest minimum."""
    n, d = points.reference.logs(points.parameters, points.tokens)
    per_set = [form.starts(n, d, losses) for losses in points.losses]
    starts, count = np.concatenate(per_set), len(per_set[0])
    rows = np.repeat(np.arange(len(per_set)), count)
    residuals, deltas = _problem(form, points, rows, scale, edge, prior)
    with np.errstate(over="ignore", invalid="ignore"):
        first = descend(residuals, starts, deltas, rounds=8)
    order = np.argsort(np.nan_to_num(first.objective, nan=np.inf).reshape(-1, count), axis=1)[:, :BEST_STARTS]
    kept = (np.arange(len(per_set))[:, None] * count + order).ravel()
    residuals, deltas = _problem(form, points, rows[kept], scale, edge, prior)
    second = descend(residuals, first.parameters[kept], deltas, rounds=60)
    best = np.argmin(second.objective.reshape(len(per_set), -1), axis=1)
    return second.parameters.reshape(len(per_set), -1, len(form.names))[np.arange(len(per_set)), best]


def _described(
    form: Form,
    points: Points,
    parameters: np.ndarray,
    converged: np.ndarray,
    noise: Noise | None,
    scale: np.ndarray,
    edge: np.ndarray,
    prior: list[tuple[int, float, float]],
) -> Fit:
    """Covariance and spread of an M-estimator (Huber 1981, chapter 7), and the lack-of-fit test."""
    residuals, _ = _problem(form, points, np.arange(len(points.losses)), scale, edge, prior)
    count = points.losses.shape[1]
    slopes = jacobian(residuals, parameters)
    errors = residuals(parameters)[:, :count]
    information = np.einsum("bnp,bnq->bpq", slopes, slopes)
    inverse = np.linalg.pinv(information, rcond=1e-13, hermitian=True)
    data = np.einsum("bnp,bnq->bpq", slopes[:, :count], slopes[:, :count])
    decided = np.einsum("bpq,bqp->b", inverse, data)
    freedom = np.maximum(count - decided, 1.0)
    inside = np.abs(errors) <= edge[:, None]
    score = np.where(inside, errors, np.sign(errors) * edge[:, None])
    share = np.maximum(inside.mean(axis=1), 0.05)
    correction = 1 + decided / count * (1 - share) / share
    spread = correction * np.sqrt((score**2).sum(axis=1) / freedom) / share
    return Fit(
        form, points.reference, parameters, inverse * spread[:, None, None] ** 2, spread, freedom,
        _lack_of_fit((score**2).sum(axis=1), freedom, noise), converged,
    )  # fmt: skip


def _lack_of_fit(square: np.ndarray, freedom: np.ndarray, noise: Noise | None) -> np.ndarray:
    """P value of F = (residuals beyond repeats / their freedom) / variance of repeats."""
    if noise is None:
        return np.ones(len(square))
    pure = noise.sigma**2 * noise.freedom
    beyond = np.maximum(freedom - noise.freedom, 1e-9)
    ratio = np.maximum(square - pure, 0.0) / beyond / np.maximum(noise.sigma**2, 1e-300)
    return special.fdtrc(beyond, noise.freedom, ratio)
