"""Forecasts of task scores in two steps: the law says the loss, and a curve over other checkpoints says the score of a loss.

The curve is a sigmoid between a floor, which is guessing, and a ceiling (Bhagia et al. 2024, arXiv 2412.04403, step 2; Dubey et
al. 2024, arXiv 2407.21783, section 3.2.1). Its points are checkpoints that have both numbers. The interval is that of draws: a
loss from the law's forecast, a curve from its covariance, and the scatter of a checkpoint around the curve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import optimize, special

from lineage.artifact.store import Artifact
from science.forecasts.outcome import Outcome, outcome_of
from science.laws.interval import LEVELS

LEAST_POINTS = 6
PASS_AT = "pass_at_"
"""How the metrics of sampled tasks begin (`evals.scoring.pass_at_k`)."""
DRAWS = 20_000
RELATED = 0.95
"""Level at which the slope of the curve must differ from 0."""


@dataclass(frozen=True)
class ScoreStep:
    """The second step of a forecast: which score of the same results follows the loss."""

    task: str
    metric: str
    unit: str = "share"
    floor: float = 0.0
    """What guessing scores."""
    ceiling: float = 1.0
    seed: int = 0
    form: Literal["sigmoid", "pass_at_k"] = field(default="sigmoid", metadata={"added_later": True})
    """`pass_at_k`: the metric is `pass_at_<k>`, and all k of the checkpoints are fitted together
    (`science.forecasts.pass_curves`)."""

    @property
    def k(self) -> int:
        """The samples of a `pass_at_k`."""
        return int(self.metric.removeprefix(PASS_AT))

    @property
    def bounds(self) -> tuple[float, float]:
        """What a score can be at all: a share lies in 0..1, other units have no bounds."""
        return (0.0, 1.0) if self.unit == "share" else (-np.inf, np.inf)

    def __post_init__(self) -> None:
        if self.form not in ("sigmoid", "pass_at_k"):
            raise ValueError(f"score step: form is {self.form!r}; sigmoid and pass_at_k are allowed")
        if self.form == "pass_at_k":
            number = self.metric.removeprefix(PASS_AT)
            plain = (self.floor, self.ceiling, self.unit) == (0.0, 1.0, "share")
            if not self.metric.startswith(PASS_AT) or not number.isdecimal() or int(number) < 1 or not plain:
                raise ValueError(
                    f"score step: form is 'pass_at_k' with metric {self.metric!r}, unit {self.unit!r}, floor {self.floor} and "
                    f"ceiling {self.ceiling}; it needs a metric such as pass_at_8, the unit share, floor 0 and ceiling 1"
                )
        if self.floor == self.ceiling:
            raise ValueError(f"score step: floor and ceiling are both {self.floor}; the score of a useless model is the floor")


class RefusedScoreError(ValueError):
    """The points say nothing of the score; the message says why."""


@dataclass(frozen=True)
class Curve:
    """score = floor + (ceiling - floor) / (1 + exp(-(a + b (loss - centre))))."""

    step: ScoreStep
    centre: float
    parameters: np.ndarray
    """(a, b), and more in other forms."""
    covariance: np.ndarray
    spread: float
    """Standard deviation of a checkpoint around the curve, in the unit of the score."""
    freedom: int
    losses: tuple[float, float]
    """Range of the points' losses."""

    def at(self, losses: np.ndarray | float, parameters: np.ndarray | None = None) -> np.ndarray:
        """Scores at losses; `parameters` (draws, 2) instead of the fitted ones."""
        a, b = (self.parameters if parameters is None else parameters).T
        share = special.expit(a + b * (np.asarray(losses, float) - self.centre))
        return self.step.floor + (self.step.ceiling - self.step.floor) * share


def fit_curve(step: ScoreStep, losses: np.ndarray, scores: np.ndarray) -> Curve:
    """Least squares. Raises: RefusedScoreError for too few points, and where the score does not follow the loss."""
    if len(losses) < LEAST_POINTS:
        raise RefusedScoreError(f"{len(losses)} checkpoints have a loss and a score; at least {LEAST_POINTS} are needed")
    centre, height = float(losses.mean()), step.ceiling - step.floor
    share = np.clip((scores - step.floor) / height, 0.02, 0.98)
    slope, level = np.polyfit(losses - centre, special.logit(share), 1)

    def residuals(p: np.ndarray) -> np.ndarray:
        return step.floor + height * special.expit(p[0] + p[1] * (losses - centre)) - scores

    solution = optimize.least_squares(residuals, [level, slope], xtol=1e-12, ftol=1e-12, gtol=1e-12)
    freedom = len(losses) - 2
    spread = float(np.sqrt(2 * solution.cost / freedom))
    covariance = np.linalg.pinv(solution.jac.T @ solution.jac) * spread**2
    edge = float(special.stdtrit(freedom, 0.5 + RELATED / 2)) * float(np.sqrt(covariance[1, 1]))
    if not solution.success or abs(solution.x[1]) <= edge:
        raise RefusedScoreError(
            f"{step.task} {step.metric} does not follow the loss: the slope is {solution.x[1]:.3g} ± {edge:.2g} over "
            f"{len(losses)} checkpoints. Add checkpoints over a wider range of losses, or forecast another score"
        )
    return Curve(step, centre, solution.x, covariance, spread, freedom, (float(losses.min()), float(losses.max())))


@dataclass(frozen=True)
class ScoreForecast:
    """Point and intervals in the unit of the score."""

    point: float
    intervals: dict[float, tuple[float, float]]
    noise: float
    """Standard deviation of one run's score about the curve, and by the noise of its loss."""


def forecast_score(curve: Curve, losses: np.ndarray, noise: float) -> ScoreForecast:
    """The score of a run whose loss is forecast by draws; `noise` is the standard deviation of one run's loss."""
    random = np.random.default_rng(curve.step.seed)
    count = len(losses)
    # A multivariate t: errors of the curve and scatter share the estimate of the spread.
    inflated = np.sqrt(curve.freedom / random.chisquare(curve.freedom, count))
    size = len(curve.parameters)
    root = np.linalg.cholesky(curve.covariance + 1e-18 * np.eye(size))
    curves = curve.parameters + (random.standard_normal((count, size)) @ root.T) * inflated[:, None]
    scattered = curve.at(losses, curves) + random.standard_normal(count) * curve.spread * inflated
    # A draw beyond what a score can be counts as the bound: the ends move to where the outcome can be, and hold as often.
    scores = np.clip(scattered, *curve.step.bounds)
    ends = {level: (0.5 - level / 2, 0.5 + level / 2) for level in LEVELS}
    intervals = {level: (float(np.quantile(scores, a)), float(np.quantile(scores, b))) for level, (a, b) in ends.items()}
    middle = float(np.median(losses))
    slope = float(curve.at(middle + 1e-4) - curve.at(middle - 1e-4)) / 2e-4
    return ScoreForecast(float(np.median(scores)), intervals, float(np.hypot(curve.spread, slope * noise)))


@dataclass(frozen=True)
class Scored:
    """Checkpoints with a loss and a score, and the policy of the score."""

    names: tuple[str, ...]
    losses: np.ndarray
    scores: np.ndarray
    policy: str
    by_k: Mapping[int, np.ndarray] = field(default_factory=dict)
    """pass@k of each checkpoint by k, for the form `pass_at_k`."""


def scored_points(step: ScoreStep, task: str, metric: str, results: Sequence[Artifact]) -> Scored:
    """Join results by checkpoint. Raises: RefusedScoreError for several policies, a divergence, or a missing number."""
    by_checkpoint: dict[str, list[Outcome]] = {}
    for result in results:
        outcome = outcome_of(result)
        by_checkpoint.setdefault(outcome.checkpoint.data_version, []).append(outcome)
    every = [outcome for outcomes in by_checkpoint.values() for outcome in outcomes]
    if gone := [outcome.name for outcome in every if outcome.diverged is not None]:
        raise RefusedScoreError(f"{', '.join(gone)} diverged; leave their checkpoints out")
    if len(policies := sorted({outcome.policy for outcome in every})) != 1:
        raise RefusedScoreError(f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one")
    points = list(by_checkpoint.values())
    columns = [[_value(outcomes, *wanted) for outcomes in points] for wanted in ((task, metric), (step.task, step.metric))]
    names = tuple(each[0].checkpoint.name for each in points)
    by_k = {k: np.array([_value(outcomes, step.task, f"{PASS_AT}{k}") for outcomes in points]) for k in _ks(step, points)}
    return Scored(names, np.array(columns[0]), np.array(columns[1]), policies[0], by_k)


def _ks(step: ScoreStep, points: Sequence[Sequence[Outcome]]) -> list[int]:
    """Every k that all checkpoints have a pass@k of."""
    if step.form != "pass_at_k":
        return []
    metrics_of_points = [
        {metric for outcome in outcomes for task, metric in outcome.scores if task == step.task} for outcomes in points
    ]
    return sorted(int(name.removeprefix(PASS_AT)) for name in set.intersection(*metrics_of_points) if name.startswith(PASS_AT))


def _value(outcomes: Sequence[Outcome], task: str, metric: str) -> float:
    for outcome in outcomes:
        if (task, metric) in outcome.scores:
            return outcome.scores[task, metric]
    raise RefusedScoreError(f"{outcomes[0].checkpoint.name} has no {metric} of {task} in its {len(outcomes)} results")
