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
SMALLEST_MISS = (
    "The smallest miss is the smallest error that the forecast could have shown, in the unit of the metric: from its point to "
    "the nearer end of its 90 % interval."
)
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
    smallest_visible: float | None
    """The smallest error that is a miss, in the unit of the metric: from the point to the nearer end of the 90 % interval. An
    error below it, of either sign, would have been a hit."""


def judge(config: VerdictConfig, forecast: Artifact, result: Artifact) -> Judged:
    """Judge a result of the forecast's target. Raises: ValueError for a forecast whose file was edited."""
    forecast.verify()
    facts = json.loads(forecast.file(FORECAST_FILE).read_text())
    result_outcome = outcome_of(result)
    why = _void(config, facts, forecast, result_outcome, result)
    if why is not None:
        return Judged("void", why, None, None, None, None, None)
    measured = result_outcome.score(config.task, config.metric)
    low, high = facts["intervals"][LEVEL]
    error = measured - facts["point"]
    visible = min(facts["point"] - low, high - facts["point"])
    outcome: Outcome = "low" if measured < low else "high" if measured > high else "hit"
    return Judged(outcome, "", measured, error, error / facts["noise"], 2 * error / (high - low), visible)


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
    began = {ref.name: ref.data_version for ref in checkpoint.spec.inputs}.get("start")
    if began != target.get("start"):
        return f"warm-started elsewhere: the run starts from {began}, the forecast is of a start from {target.get('start')}"
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
    columns = ("verdict", "outcome", "error", "in seed sigmas", "in half-widths", "smallest miss", "why")
    lines = ["# Forecasts and what became of them", "", SMALLEST_MISS, "", f"| {' | '.join(columns)} |"]
    lines.append("|---" * len(columns) + "|")
    for artifact in ordered:
        facts = artifact.manifest.extra["verdict"]
        numbers = [
            "-" if facts.get(name) is None else f"{facts[name]:{form}}"  # verdicts before version 2 have no smallest miss
            for name, form in (("error", "+.4f"), ("sigmas", "+.1f"), ("half_widths", "+.2f"), ("smallest_visible", ".4f"))
        ]
        lines.append(f"| {artifact.name} | {facts['outcome']} | {' | '.join(numbers)} | {facts['why'] or '-'} |")
    path.write_text("\n".join(lines) + "\n")


VERDICT = Stage("science.verdict", "2", make_verdict)
"""2: the smallest error that is a miss; void where the target starts from another checkpoint."""
