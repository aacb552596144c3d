"""Seed variance of a crossed sweep as an artifact: `seeds.json`, `seeds.png` and `seeds.md`, a page with every budget.

Trials of one recipe differ only in the seed of the run (initialization) and the seed of its mixture (data order). Each pair of
seeds has one run.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.storage.digests import identity_digest
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.seeds import SeedVariance, seed_variance
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

PAIRS = (1, 2, 6)
"""Numbers of runs a side for which the page says what difference would show."""


@dataclass(frozen=True)
class SeedVarianceConfig:
    """Which score is the loss."""

    task: str
    metric: str
    unit: str


class RefusedSeedsError(ValueError):
    """The trials are no crossed table; the message names the cells that lack or have no loss."""


@dataclass(frozen=True)
class _Recipe:
    """Runs that differ only in their seeds."""

    flops: float
    cells: dict[tuple[int, int], Outcome]
    """(initialization seed, data seed) -> outcome."""


def make_seed_variance(out: Writer, config: SeedVarianceConfig, results: tuple[Artifact, ...]) -> None:
    """Split the variance of every recipe. Raises: RefusedSeedsError for an incomplete table, a divergence or two policies."""
    outcomes = [outcome_of(result) for result in results]
    recipes = sorted(_recipes(outcomes), key=lambda recipe: recipe.flops)
    if odd := [*_faults(recipes), *_policies(outcomes)]:
        raise RefusedSeedsError(f"{out.spec.name}: {'; '.join(odd)}")
    variances = [(recipe.flops, seed_variance(_losses(recipe, config))) for recipe in recipes]
    facts = {"unit": config.unit, "policy": outcomes[0].policy, "budgets": [_record(*each) for each in variances]}
    (out.folder / "seeds.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(facts, out.folder / "seeds.png")
    (out.folder / "seeds.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra["seeds"] = facts
    out.record(rows_in=len(results), rows_out=len(recipes))


def _recipes(outcomes: Sequence[Outcome]) -> list[_Recipe]:
    recipes: dict[str, _Recipe] = {}
    for outcome in outcomes:
        run = from_jsonable(CheckpointConfig, outcome.checkpoint.spec.config).run
        order = int(outcome.checkpoint.input("mixture").spec.config["seed"])
        recipe = identity_digest(to_jsonable(replace(run, name="", seed=0)))
        cells = recipes.setdefault(recipe, _Recipe(size_of(run).flops, {})).cells
        if (run.seed, order) in cells:
            raise RefusedSeedsError(f"{outcome.name} and {cells[run.seed, order].name} have the same two seeds; keep one")
        cells[run.seed, order] = outcome
    return list(recipes.values())


def _axes(recipe: _Recipe) -> tuple[list[int], list[int]]:
    """The seeds of initialization and of data order, in order."""
    return sorted({seed for seed, _ in recipe.cells}), sorted({order for _, order in recipe.cells})


def _faults(recipes: Sequence[_Recipe]) -> Iterator[str]:
    for recipe in recipes:
        seeds, orders = _axes(recipe)
        absent = [f"({seed}, {order})" for seed in seeds for order in orders if (seed, order) not in recipe.cells]
        if absent:
            yield f"at {recipe.flops:.3g} FLOPs no run has the seeds {', '.join(absent)} (initialization, data)"
        if min(len(seeds), len(orders)) < 2:
            yield f"at {recipe.flops:.3g} FLOPs there are {len(seeds)} x {len(orders)} seeds; at least 2 x 2 are needed"
        for outcome in recipe.cells.values():
            if outcome.diverged is not None:
                yield f"{outcome.name} diverged: {outcome.diverged}"


def _policies(outcomes: Sequence[Outcome]) -> Iterator[str]:
    policies = sorted({outcome.policy for outcome in outcomes})
    if len(policies) > 1:
        yield f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one"


def _losses(recipe: _Recipe, config: SeedVarianceConfig) -> np.ndarray:
    seeds, orders = _axes(recipe)
    return np.array([[recipe.cells[seed, order].score(config.task, config.metric) for order in orders] for seed in seeds])


def _record(flops: float, variance: SeedVariance) -> dict[str, Any]:
    visible = {str(pairs): variance.smallest_visible(pairs) for pairs in PAIRS}
    return {"flops": flops, **asdict(variance), "sigma": variance.sigma, "smallest_visible": visible}


def draw(facts: dict[str, Any], path: Path) -> None:
    """Standard deviation of each term by training FLOPs."""
    by_term: dict[str, list[float]] = defaultdict(list)
    for row in facts["budgets"]:
        for term in ("initialization", "data_order", "rest"):
            by_term[term].append(row[term] ** 0.5)
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    for term, values in by_term.items():
        axes.plot([row["flops"] for row in facts["budgets"]], values, "o-", label=term.replace("_", " "))
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("training FLOPs")
    axes.set_ylabel(f"standard deviation, {facts['unit']}")
    axes.legend()
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: dict[str, Any]) -> Iterator[str]:
    unit = facts["unit"]
    yield from (f"# {name}", "", f"Standard deviations of one run's loss, in {unit}.", "", "![Terms by FLOPs](seeds.png)", "")
    shows = " | ".join(f"{pairs} runs a side would show" for pairs in PAIRS)
    yield f"| FLOPs | runs | initialization | data order | rest | one run | {shows} |"
    yield "|---" * (6 + len(PAIRS)) + "|"
    for row in facts["budgets"]:
        terms = " | ".join(f"{row[term] ** 0.5:.5f}" for term in ("initialization", "data_order", "rest"))
        visible = " | ".join(f"{value:.5f}" for value in row["smallest_visible"].values())
        yield f"| {row['flops']:.3g} | {row['runs']} | {terms} | {row['sigma']:.5f} | {visible} |"
    yield from ("", "The differences are those that a two-sided test at .95 of unpaired runs would show.")


SEED_VARIANCE = Stage("science.seed_variance", "1", make_seed_variance)
