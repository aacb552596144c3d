"""Freeze a forecast: the artifact that its target run takes as an input.

It binds the target's spec, mixture and start, the metric with unit and policy, the point, intervals, method, fit, largest
fitted budget and seeds. It is refused if a result of the target could have been known: in its ancestors, or anywhere in the
store. That nobody trained the same spec elsewhere cannot be proved, and the file says so.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from trainer.spec.target import FORECAST_FILE, bound_to, recipe_digest, size_of

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
    out: Writer,
    config: ForecastConfig,
    table: Artifact,
    fit: Artifact,
    mixture: Artifact,
    scores: tuple[Artifact, ...] = (),
    start: Artifact | None = None,
) -> None:
    """Write `forecast.json`. `scores` are the results of the second step, if there is one; `start` is that of the target.

    Raises: RefusedForecastError, RefusedSweepError, RefusedScoreError.
    """
    method = from_jsonable(FitConfig, fit.spec.config)
    target = target_facts(out, config.target, mixture, start)
    _refuse_inputs(out, config, table, fit, scores)
    refuse_known(out, config.target, mixture, fit, *scores, *(() if start is None else (start,)))
    _refuse_second(out, config, target)
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
        "target": target,
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


def target_facts(out: Writer, run: RunSpec, mixture: Artifact, start: Artifact | None) -> dict[str, Any]:
    """What a forecast binds of its target. Raises: RefusedForecastError if only one of spec and inputs has a start."""
    if (start is None) != (run.start is None):
        declared, given = ("no start", "one") if run.start is None else ("a start", "none")
        raise RefusedForecastError(
            f"{out.spec.name}: the spec of {run.name} declares {declared}, the forecast has {given} as its input; give both or "
            "neither"
        )
    size = size_of(run)
    return bound_to(run, mixture, start) | {
        "name": run.name, "recipe": recipe_digest(run), "seed": run.seed, "steps": run.num_steps,
        "parameters": size.parameters, "tokens": size.tokens, "flops": size.flops,
    }  # fmt: skip


def _refuse_inputs(out: Writer, config: ForecastConfig, table: Artifact, fit: Artifact, scores: tuple[Artifact, ...]) -> None:
    """Refuse inputs that do not belong together."""
    if bool(scores) != (config.score is not None):
        raise RefusedForecastError(f"{out.spec.name}: it has {len(scores)} results of scores, and its step is {config.score}")
    if fit.input("table").spec.address != table.spec.address:
        raise RefusedForecastError(f"{out.spec.name}: {fit.name} was fitted to another table than {table.name}")
    if to_jsonable(from_jsonable(FitConfig, fit.spec.config)) != to_jsonable(config.method):
        raise RefusedForecastError(f"{out.spec.name}: its method is not that of {fit.name}; give both one FitConfig")


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


def refuse_known(out: Writer, target: RunSpec, mixture: Artifact, *roots: Artifact) -> None:
    """Refuse a target whose result could have been known: by an ancestor of `roots`, or by the store."""
    if known := sorted({artifact.name for artifact in results_of(out.store, target, mixture, *roots)}):
        raise RefusedForecastError(
            f"{out.spec.name}: the target's recipe was trained already ({', '.join(known)}); a forecast is made before that"
        )


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


def _refuse_second(out: Writer, config: ForecastConfig, target: Mapping[str, Any]) -> None:
    """A score's policy is known only from its results, so any counts."""
    if config.score is None:
        refuse_second(out, target, (config.task, config.metric), config.policy, config.siblings)
    else:
        refuse_second(out, target, (config.score.task, config.score.metric), None, config.siblings)


def refuse_second(
    out: Writer, target: Mapping[str, Any], metric: tuple[str, str], policy: str | None, siblings: tuple[str, ...]
) -> None:
    """Refuse if the store has a forecast of either kind of this target, metric (task, name) and policy that is no sibling.

    `policy` None is any. A forecast of the same name and kind is one that this one replaces.
    """
    names = set()
    for artifact in out.store.artifacts("forecasts"):
        facts = artifact.manifest.extra.get("forecast")
        if facts is None or (artifact.spec.key, artifact.spec.stage) == (out.spec.key, out.spec.stage):
            continue
        other, of = facts["target"], facts["metric"]
        same = all(other.get(name) == target.get(name) for name in ("run", "mixture", "start"))
        if same and (of["task"], of["name"]) == metric and policy in (None, of["policy"]):
            names.add(artifact.spec.key[-1])
    if others := sorted(names - set(siblings)):
        raise RefusedForecastError(
            f"{out.spec.name}: the store has another forecast of this run and metric, {', '.join(others)}, which `siblings` "
            "does not name; a run that is forecast twice is judged by both"
        )


FORECAST = Stage("science.forecast", "2", make_forecast)
"""2: the target's tokenizer is that of the trials; epochs of the target; another forecast of the run is named."""
