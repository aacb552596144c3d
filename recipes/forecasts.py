"""Forecasts of runs as declared, and their nodes: the forecast, the result that it is judged by, and the verdict."""

from dataclasses import dataclass, field
from functools import cache

from evals.items.stage import TRIAL_RESULT, TaskSpec
from lineage.build.nodes import Node
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from recipes.data import corpora
from recipes.records.placement import CANONICAL
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.runs import checkpoint, eval_tasks, mixture, start, task_result
from recipes.sweeps import RESULT_CONFIG, fit, results, table
from recipes.tokenized import tokenizer
from science.forecasts.freeze import FORECAST, ForecastConfig
from science.forecasts.ladder import LADDER_FORECAST, LadderConfig
from science.forecasts.two_steps import ScoreStep
from science.forecasts.verdict import VERDICT, VerdictConfig


@dataclass(frozen=True)
class Forecast:
    """What the law of a sweep says of a run, frozen before the run starts: `Run(..., forecast=Forecast("f", sweep))`."""

    name: str
    sweep: Sweep
    siblings: tuple[str, ...] = ()
    """Names of other forecasts of the same run, which are judged beside it."""

    score: ScoreStep | None = None
    """A task score that is forecast in two steps: the law says the loss, and `points` say the score of a loss."""

    points: tuple[tuple[Run, int], ...] = ()
    """(run, saved step) of checkpoints with a loss and a score by one evaluation policy, for the second step."""

    beyond: str = ""
    """Why the run is forecast although it is far above the fitted budgets or repeats data that the trials do not."""

    def __post_init__(self) -> None:
        if self.sweep.law is None:
            raise ValueError(f"forecast {self.name}: sweep {self.sweep.name} declares no law; give it a FitConfig")
        if self.sweep.max_missing:
            raise ValueError(
                f"forecast {self.name}: sweep {self.sweep.name} may lack {self.sweep.max_missing} trials, so its table could "
                "change; set max_missing to 0"
            )
        if (self.score is None) != (not self.points):
            raise ValueError(
                f"forecast {self.name}: score is {self.score}, {len(self.points)} checkpoints are given; a score needs both"
            )
        for run, _ in self.points:
            self._tasks(run)

    def node(self, run: Run) -> Node:
        return forecast(self, run)

    @property
    def judged_by(self) -> tuple[str, str]:
        """Task and metric of the result that judges it."""
        loss = self.sweep.loss
        return (loss.task, loss.metric) if self.score is None else (self.score.task, self.score.metric)

    @property
    def scores(self) -> tuple[Node, ...]:
        """Results of the checkpoints of the second step: the loss and the score."""
        return tuple(task_result(run, step, task) for run, step in self.points for task in self._tasks(run))

    def _tasks(self, run: Run) -> tuple[TaskSpec, ...]:
        """The tasks of a run's policy with the loss and the score. Raises: ValueError if it lacks one."""
        assert self.score is not None
        names = {name.split("/")[0] for name in (self.sweep.loss.task, self.score.task)}
        tasks = tuple(task for task in eval_tasks(run) if task.name in names)
        if missing := sorted(names - {task.name for task in tasks}):
            known = ", ".join(task.name for task in eval_tasks(run))
            raise ValueError(f"forecast {self.name}: the policy of {run.name} has no task {', '.join(missing)}; it has {known}")
        return tasks


@dataclass(frozen=True)
class LadderForecast:
    """What branches of smaller models say of the branch of a larger one: `Run(..., forecast=LadderForecast("f", branches))`.

    The run starts from a step of a larger model; each trial of the sweep starts from a smaller one.
    """

    name: str
    sweep: Sweep
    """Branches of the smaller rungs. At least one rung has two, in different data orders."""

    asymptote: float | None = None
    """Loss that no budget reaches; None: it is fitted, which takes four rungs."""

    siblings: tuple[str, ...] = ()
    beyond: str = ""
    score: ScoreStep | None = field(default=None, init=False)
    scores: tuple[Node, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if strange := [trial.name for trial in self.sweep.trials if trial.start is None]:
            raise ValueError(f"forecast {self.name}: trials {', '.join(strange)} start from nothing; a rung is a branch")

    @property
    def judged_by(self) -> tuple[str, str]:
        """Task and metric of the result that judges it."""
        return self.sweep.loss.task, self.sweep.loss.metric

    def node(self, run: Run) -> Node:
        return ladder_forecast(self, run)


type AnyForecast = Forecast | LadderForecast


@cache
def ladder_forecast(of: LadderForecast, run: Run) -> Node:
    """The point and intervals for a branch of the largest rung. Raises: ValueError for a run that starts from nothing."""
    before, loss = start(run), of.sweep.loss
    if before is None:
        raise ValueError(f"forecast {of.name}: run {run.name} starts from nothing; a ladder forecasts a branch")
    config = LadderConfig(run.spec, loss.task, loss.metric, loss.unit, of.asymptote, siblings=of.siblings, beyond=of.beyond)
    inputs = {"results": results(of.sweep), "mixture": mixture(run), "start": before}
    return Node(("forecasts", of.name), None, LADDER_FORECAST, config, inputs)


@cache
def forecast(of: Forecast, run: Run) -> Node:
    """The point and intervals for a run, bound to its spec, its mixture, its start, the metric and the policy."""
    law, loss = of.sweep.law, of.sweep.loss
    assert law is not None  # the record refuses it
    policy = identity_digest(to_jsonable(RESULT_CONFIG))
    config = ForecastConfig(run.spec, loss.task, loss.metric, loss.unit, policy, of.siblings, of.beyond, law, of.score)
    inputs: dict[str, Node | tuple[Node, ...]] = {"table": table(of.sweep), "fit": fit(of.sweep), "mixture": mixture(run)}
    if (before := start(run)) is not None:
        inputs["start"] = before
    if of.score is not None:
        inputs["scores"] = of.scores
    return Node(("forecasts", of.name), None, FORECAST, config, inputs)


@cache
def outcome(of: AnyForecast, run: Run) -> Node:
    """Held-out scores of the run's last checkpoint, made as those of the trials are; or its evaluation on the score's task."""
    if of.score is not None:
        name = of.score.task.split("/")[0]
        return next(task_result(run, run.spec.num_steps, task) for task in eval_tasks(run) if task.name == name)
    at = run.place.data
    inputs = {
        "trial": checkpoint(run, run.spec.num_steps),
        "tokenizer": tokenizer(run.tokens, at),
        "corpora": corpora(run.heldout_corpus, at),
    }
    return Node(("forecasts", of.name, "result"), None, TRIAL_RESULT, RESULT_CONFIG, inputs, run.evaluation.hardware)


@cache
def verdict(of: AnyForecast, run: Run) -> Node:
    """Hit, low, high or void."""
    config = VerdictConfig(*of.judged_by)
    return Node(
        ("forecasts", of.name, "verdict"), None, VERDICT, config, {"forecast": of.node(run), "result": outcome(of, run)}
    )


def forecast_of(run: Run) -> AnyForecast | None:
    """The forecast of a run. Raises: ValueError for a run that is not placed canonically or has a forecast of another kind."""
    if run.forecast is None:
        return None
    if not isinstance(run.forecast, Forecast | LadderForecast) or run.place != CANONICAL:
        raise ValueError(f"run {run.name}: its forecast is {run.forecast!r} at {run.place}; only a declared run has one")
    return run.forecast
