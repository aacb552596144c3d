"""Microannealing as an artifact: `annealing.json`, `annealing.png` and `annealing.md`, a page with a verdict for each mix.

Short runs branch from one checkpoint, a mix and a data order each. A mix is compared with the control in pairs that share the
data order's seed, so what a seed does to both is not noise (Blakeney et al. 2024, arXiv 2406.03476; Feng et al. 2024, arXiv
2412.15285). The level is divided by the number of comparisons (Bonferroni).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.paired import paired

LEAST_SEEDS = 3
type Verdict = Literal["better", "worse", "undecided", "diverged"]


@dataclass(frozen=True)
class AnnealingConfig:
    """What is compared; part of the verdict's identity."""

    mixes: tuple[str, ...]
    """The control first. The results stand in this order, all seeds of a mix together."""
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    metric: str
    unit: str
    level: float = 0.95

    def __post_init__(self) -> None:
        if len(self.mixes) < 2 or len(set(self.mixes)) < len(self.mixes):
            raise ValueError(f"annealing: mixes are {self.mixes}; give a control and at least one other, each once")
        if len(set(self.seeds)) < LEAST_SEEDS or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"annealing: seeds are {self.seeds}; give at least {LEAST_SEEDS}, each once")
        if not self.tasks or not 0 < self.level < 1:
            raise ValueError(f"annealing: tasks are {self.tasks}, level is {self.level}; give a task and a level in 0..1")


class RefusedAnnealingError(ValueError):
    """The branches cannot be compared; the message says why."""


@dataclass(frozen=True)
class Compared:
    """A mix against the control on one task; a difference below 0 is a lower loss."""

    mix: str
    task: str
    verdict: Verdict
    why: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    smallest_visible: float | None = None
    """The difference whose interval would have excluded 0."""


def judge_annealing(out: Writer, config: AnnealingConfig, results: tuple[Artifact, ...]) -> None:
    """Compare every mix with the control. A mix of which a branch diverged is not compared.

    Raises: RefusedAnnealingError for several policies or starts, or a control that diverged.
    """
    outcomes = [outcome_of(result) for result in results]
    count = len(config.seeds)
    by_mix = {mix: outcomes[index * count : (index + 1) * count] for index, mix in enumerate(config.mixes)}
    if odd := list(_faults(config, outcomes, by_mix)):
        raise RefusedAnnealingError(f"{out.spec.name}: {'; '.join(odd)}")
    control, *others = config.mixes
    rows = [_compared(config, task, mix, by_mix[control], by_mix[mix]) for mix in others for task in config.tasks]
    facts = {
        "control": control,
        "start": outcomes[0].checkpoint.input("start").name,
        "unit": config.unit,
        "level": config.level,
        "seeds": list(config.seeds),
        "rows": [asdict(row) for row in rows],
    }
    (out.folder / "annealing.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(rows, config, out.folder / "annealing.png")
    (out.folder / "annealing.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra["annealing"] = facts
    out.record(rows_in=len(results), rows_out=len(rows))


def _faults(config: AnnealingConfig, outcomes: Sequence[Outcome], by_mix: dict[str, list[Outcome]]) -> Iterator[str]:
    wanted = len(config.mixes) * len(config.seeds)
    if len(outcomes) != wanted:
        yield f"there are {len(outcomes)} results for {len(config.mixes)} mixes x {len(config.seeds)} seeds"
        return
    policies = sorted({outcome.policy for outcome in outcomes})
    if len(policies) > 1:
        yield f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one"
    without = [o.name for o in outcomes if "start" not in {ref.name for ref in o.checkpoint.spec.inputs}]
    if without:
        yield f"{', '.join(without)} start from no checkpoint"
        return
    starts = sorted({outcome.checkpoint.input("start").data_version for outcome in outcomes})
    if len(starts) > 1:
        yield f"the branches start from {len(starts)} checkpoints; branch all from one"
    for outcome in by_mix[config.mixes[0]]:
        if outcome.diverged is not None:
            yield f"{outcome.name}, of the control, diverged: {outcome.diverged}"


def _compared(
    config: AnnealingConfig, task: str, mix: str, control: Sequence[Outcome], branches: Sequence[Outcome]
) -> Compared:
    gone = [branch.name for branch in branches if branch.diverged is not None]
    if gone:
        return Compared(mix, task, "diverged", f"{', '.join(gone)} diverged")
    comparisons = (len(config.mixes) - 1) * len(config.tasks)
    base, tried = ([each.score(task, config.metric) for each in side] for side in (control, branches))
    difference = paired(base, tried, 1 - (1 - config.level) / comparisons)
    verdict: Verdict = "undecided" if not difference.excludes_zero else "better" if difference.mean < 0 else "worse"
    width = difference.high - difference.mean
    return Compared(mix, task, verdict, "", difference.mean, difference.low, difference.high, difference.pairs, width)


def draw(rows: Sequence[Compared], config: AnnealingConfig, path: Path) -> None:
    """A dot with its interval for each mix and task, and a line at no difference."""
    shown = [row for row in rows if row.difference is not None]
    figure = new_figure(6.5, 1.2 + 0.3 * max(len(shown), 1))
    axes = figure.subplots()
    middle = np.array([row.difference for row in shown], float)
    width = np.array([row.smallest_visible for row in shown], float)
    places = np.arange(len(shown))
    axes.errorbar(middle, places, xerr=width, fmt="o", capsize=4)
    axes.axvline(0.0, color="0.5", linewidth=1)
    axes.set_yticks(places, [f"{row.mix}: {row.task}" for row in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f"difference from {config.mixes[0]}, {config.unit} (left is better)")
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: dict[str, Any]) -> Iterator[str]:
    rows = facts["rows"]
    yield from (
        f"# {name}",
        "",
        f"{len(facts['seeds'])} branches of each mix from {facts['start']}, against {facts['control']}.",
    )
    yield f"Intervals hold together at {facts['level']:g}: each has the level for {len(rows)} comparisons."
    yield from ("", "![Differences from the control](annealing.png)", "")
    yield f"| mix | task | verdict | difference, {facts['unit']} | interval | smallest difference that would show |"
    yield "|---" * 6 + "|"
    for row in rows:
        if row["difference"] is None:
            yield f"| {row['mix']} | {row['task']} | {row['verdict']} | - | {row['why']} | - |"
            continue
        interval = f"{row['low']:+.5f} to {row['high']:+.5f}"
        numbers = f"{row['difference']:+.5f} | {interval} | {row['smallest_visible']:.5f}"
        yield f"| {row['mix']} | {row['task']} | {row['verdict']} | {numbers} |"


ANNEALING = Stage("science.annealing", "1", judge_annealing)
