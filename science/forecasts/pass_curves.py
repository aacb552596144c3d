"""The second step of a forecast of pass@k: one curve for all k, over problems that differ in how hard they are.

A problem is solved by a sample with the chance sigmoid(a + b (loss - centre) + s z), where z is normal over problems, so
pass@k = E[1 - (1 - chance)^k]. All k of a checkpoint are fitted together: how they differ says how much problems differ (s),
and with that how pass@k goes on. A sigmoid for one k alone has no such term; beyond the fitted losses it is off by up to .04
on planted problems (docs/log.md, 2026-11-26).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from science.forecasts.two_steps import LEAST_POINTS, RELATED, Curve, RefusedScoreError, Scored, ScoreStep, fit_curve

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
CLIPPED = (-4.0, 3.0)
"""Range of log s in draws: beyond it problems are equal, or each is solved always or never."""


def curve_of(step: ScoreStep, points: Scored) -> Curve:
    """The second step of a forecast, in the form of the step. Raises: RefusedScoreError."""
    if step.form == "pass_at_k":
        return fit_pass_curve(step, points.losses, points.by_k)
    return fit_curve(step, points.losses, points.scores)


@dataclass(frozen=True)
class PassCurve(Curve):
    """pass@k of the step's metric by loss. `parameters` are (a, b, log s)."""

    @property
    def k(self) -> int:
        return self.step.k

    def at(self, losses: np.ndarray | float, parameters: np.ndarray | None = None) -> np.ndarray:
        """pass@k at losses; `parameters` (draws, 3) instead of the fitted ones."""
        drawn = self.parameters if parameters is None else parameters
        return passes(drawn, np.asarray(losses, float) - self.centre, (self.k,))[..., 0]


def passes(parameters: np.ndarray, losses: np.ndarray, ks: tuple[int, ...]) -> np.ndarray:
    """pass@k [..., k] at centred losses, for parameters (..., 3)."""
    level, slope, spread = (parameters[..., place, None] for place in range(3))
    width = np.exp(np.clip(spread, *CLIPPED))
    chances = special.expit(level + slope * losses[..., None] + width * _NODES)
    return np.stack([((1 - (1 - chances) ** k) * _SHARES).sum(axis=-1) for k in ks], axis=-1)


def fit_pass_curve(step: ScoreStep, losses: np.ndarray, by_k: Mapping[int, np.ndarray]) -> PassCurve:
    """Least squares over all k. Errors of one checkpoint's numbers belong together, so the covariance counts checkpoints.

    Raises: RefusedScoreError for too few points, and where the score does not follow the loss.
    """
    if len(losses) < LEAST_POINTS:
        raise RefusedScoreError(f"{len(losses)} checkpoints have a loss and a score; at least {LEAST_POINTS} are needed")
    ks, centre, count = tuple(sorted(by_k)), float(losses.mean()), len(losses)
    values = np.stack([by_k[k] for k in ks], axis=-1)
    first = 1 - (1 - np.clip(values[:, 0].mean(), 0.01, 0.99)) ** (1 / ks[0])

    def residuals(p: np.ndarray) -> np.ndarray:
        return (passes(np.broadcast_to(p, (count, 3)), losses - centre, ks) - values).ravel()

    solution = optimize.least_squares(residuals, [special.logit(first), -4.0, 0.3], xtol=1e-10, ftol=1e-10)
    slopes, rests = solution.jac.reshape(count, len(ks), 3), solution.fun.reshape(count, len(ks))
    bread, freedom = np.linalg.pinv(solution.jac.T @ solution.jac), count - 3
    of_checkpoints = np.einsum("ckp,ck->cp", slopes, rests)
    covariance = bread @ (of_checkpoints.T @ of_checkpoints) @ bread * count / freedom
    covariance = (covariance + covariance.T) / 2 + 1e-12 * np.eye(3)
    edge = float(special.stdtrit(freedom, 0.5 + RELATED / 2)) * float(np.sqrt(covariance[1, 1]))
    if not solution.success or abs(solution.x[1]) <= edge:
        raise RefusedScoreError(
            f"{step.task} {step.metric} does not follow the loss: the slope is {solution.x[1]:.3g} ± {edge:.2g} over "
            f"{count} checkpoints. Add checkpoints over a wider range of losses, or forecast another score"
        )
    own = rests[:, ks.index(step.k)]
    spread = float(np.sqrt((own**2).sum() / (count - 2)))
    return PassCurve(step, centre, solution.x, covariance, spread, freedom, (float(losses.min()), float(losses.max())))
