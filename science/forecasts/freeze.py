"""Freeze a forecast: the artifact that its target run takes as an input.

It binds the target's spec and mixture, the metric with unit and policy, the point, intervals, method, fit, largest fitted
budget and seeds. It is refused if a result of the target could have been known: in its ancestors, or anywhere in the store.
That nobody trained the same spec elsewhere cannot be proved, and the file says so.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lineage.artifact.store import Artifact, Store
from lineage.config import from_jsonable, to_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.fit_sweep import FitConfig, Forecasted, SweepFit, draws, fit_sweep, forecast
from science.forecasts.pass_curves import curve_of
from science.forecasts.table import data_of, read_table
from science.forecasts.two_steps import DRAWS, ScoreStep, forecast_score, scored_points
from science.trials import FLOP_TOLERANCE
from trainer.spec.config import RunSpec
from trainer.spec.stage import CHECKPOINT, CheckpointConfig
from trainer.spec.target import FORECAST_FILE, recipe_digest, run_digest, size_of

FORMAT = "forecast/1"
TRAINED = (CHECKPOINT.name, "trainer.trial")
"""Stages that train a run spec: of declared runs, and of the trials of a sweep."""
NOT_PROVABLE = "that nobody trained this spec on this mixture outside this store"


@dataclass(frozen=True)
class ForecastConfig:
    """What is forecast, and by which method; all of it is identity."""

    target: RunSpec
    task: str
    metric: str
    unit: str
    policy: str
    """Data version of the evaluation policy of the score."""
    siblings: tuple[str, ...] = ()
    """Names of other forecasts of the same target, which are scored beside it."""
    beyond: str = ""
    """Why a target is forecast all the same that is above `max_ratio` times the largest budget, or repeats data that no
    trial repeats."""
    method: FitConfig = field(default_factory=FitConfig)
    score: ScoreStep | None = field(default=None, metadata={"added_later": True})
    """A second step: the forecast is of this score, which follows the loss that task and metric name."""


class RefusedForecastError(ValueError):
    """A forecast that would not be one."""


def make_forecast(
    out: Writer, config: ForecastConfig, table: Artifact, fit: Artifact, mixture: Artifact, scores: tuple[Artifact, ...] = ()
) -> None:
    """Write `forecast.json`. `scores` are the results of the second step, if there is one.

    Raises: RefusedForecastError, RefusedSweepError, RefusedScoreError.
    """
    method = from_jsonable(FitConfig, fit.spec.config)
    _refuse_inputs(out, config, table, fit, mixture, scores)
    trials = read_table(table)
    if trials[0].policy != config.policy:
        raise RefusedForecastError(f"{out.spec.name}: policy is {config.policy}, the trials were scored by {trials[0].policy}")
    fitted, data = fit_sweep(trials, method), data_of(mixture)
    if data.vocabulary != trials[0].vocabulary:
        raise RefusedForecastError(
            f"{out.spec.name}: the target's tokenizer is {data.vocabulary}, the trials' is {trials[0].vocabulary}; a law holds "
            "for one"
        )
    size, largest = size_of(config.target), float(fitted.points.budgets.max())
    epochs = {"trials": max(trial.epochs for trial in trials), "target": data.epochs(size.tokens)}
    if not config.beyond:
        _refuse_beyond(out, method, size.flops, largest, epochs)
    predicted = forecast(fitted, size.parameters, size.tokens)
    frozen = {
        "format": FORMAT,
        "target": {
            "name": config.target.name, "run": run_digest(config.target), "recipe": recipe_digest(config.target),
            "mixture": mixture.data_version, "seed": config.target.seed, "steps": config.target.num_steps,
            "parameters": size.parameters, "tokens": size.tokens, "flops": size.flops,
        },
        "metric": {"task": config.task, "name": config.metric, "unit": config.unit, "policy": config.policy},
        "point": predicted.point,
        "intervals": _by_level(predicted.intervals),
        "noise": predicted.noise,
        "method": to_jsonable(method),
        "weights": predicted.weights,
        "disagreement": predicted.disagreement,
        "coverage": {name: to_jsonable(checked) for name, checked in predicted.coverage.items()},
        "fit": fit.data_version,
        "largest_budget": largest,
        "ratio": size.flops / largest,
        "beyond": config.beyond,
        "epochs": epochs,
        "seeds": sorted({trial.seed for trial in trials}),
        "siblings": list(config.siblings),
        "not_provable": NOT_PROVABLE,
    }  # fmt: skip
    if config.score is not None:
        frozen |= _second_step(out, config, config.score, scores, fitted, predicted)
    (out.folder / FORECAST_FILE).write_text(json.dumps(frozen, indent=1, sort_keys=True) + "\n")
    out.extra["forecast"] = frozen
    out.record(rows_in=len(trials), rows_out=1)


def _refuse_inputs(
    out: Writer, config: ForecastConfig, table: Artifact, fit: Artifact, mixture: Artifact, scores: tuple[Artifact, ...]
) -> None:
    """Refuse inputs that do not belong together, and a target whose result could have been known."""
    if bool(scores) != (config.score is not None):
        raise RefusedForecastError(f"{out.spec.name}: it has {len(scores)} results of scores, and its step is {config.score}")
    if fit.input("table").spec.address != table.spec.address:
        raise RefusedForecastError(f"{out.spec.name}: {fit.name} was fitted to another table than {table.name}")
    if to_jsonable(from_jsonable(FitConfig, fit.spec.config)) != to_jsonable(config.method):
        raise RefusedForecastError(f"{out.spec.name}: its method is not that of {fit.name}; give both one FitConfig")
    known = sorted({artifact.name for artifact in results_of(out.store, config.target, mixture, fit, *scores)})
    if known:
        raise RefusedForecastError(
            f"{out.spec.name}: the target's recipe was trained already ({', '.join(known)}); a forecast is made before that"
        )
    if others := _others(out, config, mixture):
        raise RefusedForecastError(
            f"{out.spec.name}: the store has another forecast of this run and metric, {', '.join(others)}, which `siblings` "
            "does not name; a run that is forecast twice is judged by both"
        )


def _refuse_beyond(out: Writer, method: FitConfig, flops: float, largest: float, epochs: Mapping[str, float]) -> None:
    """Refuse a target far above the largest budget, and one that repeats data that no trial repeats.

    Steps are whole, so a target of exactly `max_ratio` may be above it by a rounding.
    """
    if flops > method.max_ratio * largest * (1 + FLOP_TOLERANCE):
        raise RefusedForecastError(
            f"{out.spec.name}: the target has {flops:.3g} FLOPs, {flops / largest:.3g} times the largest fitted "
            f"budget; at most {method.max_ratio:g} times, or say in `beyond` why"
        )
    if epochs["target"] > 1 >= epochs["trials"]:
        raise RefusedForecastError(
            f"{out.spec.name}: the target reads a source {epochs['target']:.2f} times, no trial repeats data; shorten it, or "
            "say in `beyond` why"
        )


def _second_step(
    out: Writer, config: ForecastConfig, step: ScoreStep, scores: tuple[Artifact, ...], fitted: SweepFit, predicted: Forecasted
) -> dict[str, object]:
    """What a forecast of a score has instead of that of the loss, and the loss as the first of its steps."""
    size, points = size_of(config.target), scored_points(step, config.task, config.metric, scores)
    curve = curve_of(step, points)
    low, high = curve.losses
    width = high - low
    if not low - width < predicted.point < high + width and not config.beyond:
        raise RefusedForecastError(
            f"{out.spec.name}: the forecast loss is {predicted.point:.4g}, the checkpoints have {low:.4g} to {high:.4g}; "
            "add checkpoints nearer to it, or say in `beyond` why"
        )
    losses = draws(fitted, predicted, (size.parameters, size.tokens), DRAWS, step.seed)
    score = forecast_score(curve, losses, predicted.noise)
    first = {"task": config.task, "name": config.metric, "unit": config.unit, "policy": config.policy}
    loss = first | {"point": predicted.point, "intervals": _by_level(predicted.intervals)}
    return {
        "metric": {"task": step.task, "name": step.metric, "unit": step.unit, "policy": points.policy},
        "point": score.point,
        "intervals": _by_level(score.intervals),
        "noise": score.noise,
        "steps": {
            "loss": loss,
            "curve": {
                "floor": step.floor, "ceiling": step.ceiling, "centre": curve.centre, "parameters": curve.parameters.tolist(),
                "errors": [float(error) for error in curve.covariance.diagonal() ** 0.5], "spread": curve.spread,
                "losses": list(curve.losses), "checkpoints": list(points.names),
                "points": [list(pair) for pair in zip(points.losses.tolist(), points.scores.tolist(), strict=True)],
                **({} if step.form == "sigmoid" else {"form": step.form}),
            },
        },
    }  # fmt: skip


def _by_level(intervals: Mapping[float, tuple[float, float]]) -> dict[str, list[float]]:
    return {f"{level:g}": list(interval) for level, interval in intervals.items()}


def results_of(store: Store, target: RunSpec, mixture: Artifact, *roots: Artifact) -> Iterator[Artifact]:
    """Checkpoints of the target's recipe: any ancestor of `roots` whatever its data, and any in the store on its mixture."""
    recipe = recipe_digest(target)
    for root in roots:
        for ancestor in store.walk_up(root):
            if _is_of(ancestor, recipe):
                yield ancestor
    for artifact in store.artifacts():
        if _is_of(artifact, recipe) and mixture.data_version in {ref.data_version for ref in artifact.spec.inputs}:
            yield artifact


def _is_of(artifact: Artifact, recipe: str) -> bool:
    if artifact.spec.stage not in TRAINED:
        return False
    return recipe_digest(from_jsonable(CheckpointConfig, artifact.spec.config).run) == recipe


def _others(out: Writer, config: ForecastConfig, mixture: Artifact) -> list[str]:
    """Forecasts of the same run, metric and policy in the store that are not named as siblings."""
    task, metric = (config.score.task, config.score.metric) if config.score is not None else (config.task, config.metric)
    same = (run_digest(config.target), mixture.data_version, task, metric)
    names = set()
    for artifact in out.store.artifacts("forecasts"):
        if artifact.spec.stage == FORECAST.name and artifact.spec.key != out.spec.key:
            facts = artifact.manifest.extra["forecast"]
            target, of = facts["target"], facts["metric"]
            if same == (target["run"], target["mixture"], of["task"], of["name"]) and _same_policy(config, of["policy"]):
                names.add(artifact.spec.key[-1])
    return sorted(names - set(config.siblings))


def _same_policy(config: ForecastConfig, policy: str) -> bool:
    """Whether the policy is that of this forecast; a score's is known only from its results, so any counts."""
    return config.score is not None or policy == config.policy


FORECAST = Stage("science.forecast", "2", make_forecast)
"""2: the target's tokenizer is that of the trials; epochs of the target; another forecast of the run is named."""
