"""The verdict on a forecast, made when the target's final evaluation is there: hit, low, high or void."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome as ResultOutcome
from science.forecasts.outcome import outcome_of
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import FORECAST, FORECAST_FILE, run_digest

LEVEL = "0.9"
type Outcome = Literal["hit", "low", "high", "void"]


@dataclass(frozen=True)
class VerdictConfig:
    """What the verdict reads; it must be what the forecast says."""

    task: str
    metric: str


@dataclass(frozen=True)
class Judged:
    """A verdict. `low` means that the outcome lies below the 90 % interval."""

    outcome: Outcome
    why: str
    measured: float | None
    error: float | None
    """Measured less forecast, in the unit of the metric."""
    sigmas: float | None
    """The error in standard deviations of one run's noise."""
    half_widths: float | None
    """The error in half-widths of the 90 % interval."""


def judge(config: VerdictConfig, forecast: Artifact, result: Artifact) -> Judged:
    """Judge a result of the forecast's target. Raises: ValueError for a forecast whose file was edited."""
    forecast.verify()
    facts = json.loads(forecast.file(FORECAST_FILE).read_text())
    result_outcome = outcome_of(result)
    why = _void(config, facts, forecast, result_outcome, result)
    if why is not None:
        return Judged("void", why, None, None, None, None)
    measured = result_outcome.score(config.task, config.metric)
    low, high = facts["intervals"][LEVEL]
    error = measured - facts["point"]
    outcome: Outcome = "low" if measured < low else "high" if measured > high else "hit"
    return Judged(outcome, "", measured, error, error / facts["noise"], 2 * error / (high - low))


def _void(
    config: VerdictConfig, facts: dict[str, Any], forecast: Artifact, outcome: ResultOutcome, result: Artifact
) -> str | None:
    """Why the result says nothing about the forecast; None if it does."""
    metric, target = facts["metric"], facts["target"]
    if (config.task, config.metric) != (metric["task"], metric["name"]):
        return f"it forecasts {metric['task']} {metric['name']}, not {config.task} {config.metric}"
    checkpoint = outcome.checkpoint
    frozen = [ref for ref in checkpoint.spec.inputs if ref.name == FORECAST]
    if [ref.data_version for ref in frozen] != [forecast.data_version]:
        had = frozen[0].data_version if frozen else "no forecast"
        return f"the run was trained with {had} as its input, and this is {forecast.data_version}"
    checkpoint_config = from_jsonable(CheckpointConfig, checkpoint.spec.config)
    if run_digest(checkpoint_config.run) != target["run"]:
        return f"the run has the spec {run_digest(checkpoint_config.run)}, the forecast is of {target['run']}"
    if checkpoint.input("mixture").data_version != target["mixture"]:
        return "the run read another mixture"
    if checkpoint_config.step != target["steps"]:
        return f"the run is judged at step {checkpoint_config.step} of {target['steps']}"
    if outcome.policy != metric["policy"]:
        return f"it was scored by the policy {outcome.policy}, not {metric['policy']}"
    for artifact in (checkpoint, result):
        if waived := artifact.manifest.extra.get("waivers"):
            return f"{artifact.name} was made under {len(waived)} waivers"
    return f"the run diverged: {outcome.diverged}" if outcome.diverged is not None else None


def make_verdict(out: Writer, config: VerdictConfig, forecast: Artifact, result: Artifact) -> None:
    """Write `verdict.json`. A verdict is final: misses and void ones are kept like hits."""
    judged = judge(config, forecast, result)
    (out.folder / "verdict.json").write_text(json.dumps(vars(judged), indent=1, sort_keys=True) + "\n")
    out.extra["verdict"] = vars(judged)
    out.facts["outcome"] = judged.outcome
    out.record(rows_in=1, rows_out=1)


def write_page(path: Path, verdicts: list[Artifact]) -> None:
    """All verdicts on one page, misses and void ones included, newest first."""
    ordered = sorted(verdicts, key=lambda artifact: artifact.manifest.created, reverse=True)
    lines = ["# Forecasts and what became of them", "", "| verdict | outcome | error | in seed sigmas | in half-widths | why |"]
    lines.append("|---" * 6 + "|")
    for artifact in ordered:
        facts = artifact.manifest.extra["verdict"]
        numbers = [
            "-" if facts[name] is None else f"{facts[name]:+.{digits}f}"
            for name, digits in (("error", 4), ("sigmas", 1), ("half_widths", 2))
        ]
        lines.append(f"| {artifact.name} | {facts['outcome']} | {' | '.join(numbers)} | {facts['why'] or '-'} |")
    path.write_text("\n".join(lines) + "\n")


VERDICT = Stage("science.verdict", "1", make_verdict)
