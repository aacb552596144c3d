"""Perplexity pools against task scores as an artifact: `correlations.json`, `correlations.png` and `correlations.md`.

A point is one checkpoint. The best use is the last checkpoints of many runs: along one run everything falls together.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.correlate import LEAST_MODELS, correlate, smallest_visible
from science.forecasts.outcome import Outcome, outcome_of


@dataclass(frozen=True)
class CorrelationConfig:
    """Pools and scores that are compared, and the level of the corrected test."""

    pools: tuple[str, ...]
    """Tasks of held-out text, such as `heldout/code`; their metric is `pool_metric`."""
    scores: tuple[tuple[str, str], ...]
    """(task, metric) of each score."""
    pool_metric: str = "bits_per_byte"
    level: float = 0.05
    permutations: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, values in (("pools", self.pools), ("scores", self.scores)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"correlation: {name} are {values}; give at least one, each once")
        if not 0 < self.level < 1:
            raise ValueError(f"correlation: level is {self.level}; it must be above 0 and below 1")
        if self.permutations < 100:
            raise ValueError(f"correlation: permutations is {self.permutations}; it must be at least 100")


class RefusedCorrelationError(ValueError):
    """The results cannot be compared; the message says why."""


def make_correlations(out: Writer, config: CorrelationConfig, results: tuple[Artifact, ...]) -> None:
    """Correlate every pool with every score over the checkpoints that were scored.

    Raises: RefusedCorrelationError for several policies, a diverged run, or a checkpoint that lacks a score.
    """
    by_checkpoint: dict[str, list[Outcome]] = {}
    for result in results:
        outcome = outcome_of(result)
        by_checkpoint.setdefault(outcome.checkpoint.data_version, []).append(outcome)
    points = list(by_checkpoint.values())
    if odd := list(_faults(points)):
        raise RefusedCorrelationError(f"{out.spec.name}: {'; '.join(odd)}")
    pools = {name: np.array([_value(point, name, config.pool_metric) for point in points]) for name in config.pools}
    scores = {f"{task} {metric}": np.array([_value(point, task, metric) for point in points]) for task, metric in config.scores}
    pairs = [asdict(each) for each in correlate(pools, scores, config.permutations, config.seed)]
    facts = {
        "models": [point[0].checkpoint.name for point in points],
        "level": config.level,
        "shown": [each for each in pairs if each["corrected"] <= config.level],
        "pairs": pairs,
        "smallest_visible": smallest_visible(len(points), len(pairs), config.level),
    }
    (out.folder / "correlations.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(pools, scores, pairs, out.folder / "correlations.png")
    (out.folder / "correlations.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra["correlations"] = facts
    out.record(rows_in=len(results), rows_out=len(pairs))


def _faults(points: Sequence[Sequence[Outcome]]) -> Iterator[str]:
    if len(points) < LEAST_MODELS:
        yield f"the results are of {len(points)} checkpoints; give at least {LEAST_MODELS}"
    policies = sorted({outcome.policy for point in points for outcome in point})
    if len(policies) > 1:
        yield f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one"
    for point in points:
        yield from (f"{outcome.name} diverged: {outcome.diverged}" for outcome in point if outcome.diverged is not None)


def _value(point: Sequence[Outcome], task: str, metric: str) -> float:
    for outcome in point:
        if (task, metric) in outcome.scores:
            return outcome.scores[task, metric]
    known = sorted({name for outcome in point for name, of in outcome.scores if of == metric})
    raise RefusedCorrelationError(
        f"{point[0].checkpoint.name} has no {metric} of {task}; with that metric it has {', '.join(known) or 'nothing'}"
    )


def draw(pools: dict[str, np.ndarray], scores: dict[str, np.ndarray], pairs: Sequence[dict[str, Any]], path: Path) -> None:
    """A table of colours: rank correlation of each pool with each score."""
    rho = {(each["pool"], each["score"]): each["rho"] for each in pairs}
    values = np.array([[rho[pool, score] for score in scores] for pool in pools])
    figure = new_figure(2.5 + 0.8 * len(scores), 2.0 + 0.35 * len(pools))
    axes = figure.subplots()
    image = axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
    axes.set_xticks(range(len(scores)), list(scores), rotation=40, ha="right")
    axes.set_yticks(range(len(pools)), list(pools))
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(column, row, f"{value:+.2f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, label="rank correlation")
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: dict[str, Any]) -> Iterator[str]:
    count, pairs, level = len(facts["models"]), len(facts["pairs"]), facts["level"]
    shown = len(facts["shown"])
    yield from (f"# {name}: {shown} of {pairs} pairs shown", "")
    yield f"{count} checkpoints. A pair is shown if its p value after Holm's correction for {pairs} pairs is at most {level:g}."
    yield f"A pair with |rho| below {facts['smallest_visible']:.2f} would not show with so few checkpoints."
    if not shown:
        yield "No pool says anything about a score here. That is a result: these pools do not stand in for these tasks."
    yield from (
        "",
        "![Rank correlations](correlations.png)",
        "",
        "| pool | score | rho | p | corrected p | shown |",
        "|---" * 6 + "|",
    )
    for each in facts["pairs"]:
        mark = "yes" if each["corrected"] <= level else "no"
        yield f"| {each['pool']} | {each['score']} | {each['rho']:+.3f} | {each['p']:.5f} | {each['corrected']:.5f} | {mark} |"
    yield from ("", "Checkpoints: " + ", ".join(facts["models"]))


CORRELATIONS = Stage("science.correlations", "1", make_correlations)
