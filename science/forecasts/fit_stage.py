"""The fit of a sweep as an artifact: `fit.json` with every form's numbers, `law.png`, and `law.md`, a page to read."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.fit_sweep import FitConfig, Forecasted, SweepFit, best_run, fit_sweep, forecast_all
from science.forecasts.fit_page import page
from science.forecasts.table import read_table
from science.laws.power import fit_free

DIGITS = 6
AHEAD = (2.5, 5.0, 10.0)
"""Multiples of the largest budget at which the page shows what the law says of a run at the optimum."""


def make_fit(out: Writer, config: FitConfig, table: Artifact) -> None:
    """Fit the sweep. Raises: RefusedSweepError naming every fault of the sweep."""
    trials = read_table(table)
    fitted = fit_sweep(trials, config)
    facts = {
        "metric": config.metric, "unit": config.unit, "policy": trials[0].policy, "vocabulary": trials[0].vocabulary,
        "largest_budget": float(fitted.points.budgets.max()), "trials": len(trials),
        "noise": {"sigma": _round(fitted.noise.sigma[0]), "freedom": fitted.noise.freedom},
        "forms": [_form(fitted, index) for index in range(len(fitted.fits))],
        "minima": [{name: _round(value) for name, value in asdict(valley).items()} for valley in fitted.minima],
        "minima_law": _minima_law(fitted),
        "ahead": _ahead(fitted),
    }  # fmt: skip
    (out.folder / "fit.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(fitted, out.folder / "law.png")
    (out.folder / "law.md").write_text(page(out.spec.name, facts))
    out.extra["fit"] = facts
    out.record(rows_in=len(trials), rows_out=len(fitted.fits))


def _form(fitted: SweepFit, index: int) -> dict[str, object]:
    fit = fitted.fits[index]
    errors = np.sqrt(np.diag(fit.covariance[0]))
    values = zip(fit.form.names, fit.parameters[0], errors, strict=True)
    return {
        "name": fit.form.name,
        "source": fit.form.source,
        "parameters": {name: [_round(value), _round(error)] for name, value, error in values},
        "spread": _round(fit.spread[0]),
        "lack_of_fit_p": _round(fit.lack_of_fit[0]),
        "converged": bool(fit.converged[0]),
        "reference": {name: _round(value) for name, value in asdict(fit.reference).items()},
    }


def _minima_law(fitted: SweepFit) -> dict[str, object]:
    """The law of the budgets' minima: a cross-check, with its own asymptote and 90 % half-width; or why there is none."""
    budgets = np.array([valley.budget for valley in fitted.minima])
    try:
        law = fit_free(budgets, np.array([valley.loss for valley in fitted.minima]))
    except ValueError as error:
        return {"none": str(error)}
    sizes = np.polyfit(np.log(budgets), np.log([valley.parameters for valley in fitted.minima]), 1)
    return {
        "asymptote": _round(law.asymptote), "half_width": _round(law.half_width()), "exponent": _round(law.exponent),
        "size_exponent": _round(sizes[0]),
    }  # fmt: skip


def _ahead(fitted: SweepFit) -> list[dict[str, object]]:
    """What the forms say together of a run at the optimum of larger budgets, by calibrated intervals."""
    budgets = [ratio * float(fitted.points.budgets.max()) for ratio in AHEAD if ratio <= fitted.config.max_ratio]
    runs = [best_run(fitted, budget) for budget in budgets]
    forecasts = forecast_all(fitted, runs)
    return [_ahead_of(budget, run, one) for budget, run, one in zip(budgets, runs, forecasts, strict=True)]


def _ahead_of(budget: float, run: tuple[float, float], forecast: Forecasted) -> dict[str, object]:
    low, high = forecast.intervals[0.9]
    numbers = {
        "budget": budget, "parameters": run[0], "tokens": run[1], "point": forecast.point, "low": low, "high": high,
        "disagreement": forecast.disagreement,
    }  # fmt: skip
    weights = {name: _round(weight) for name, weight in forecast.weights.items()}
    coverage = {name: _round(checked.coverage) for name, checked in forecast.coverage.items()}
    return {name: _round(value) for name, value in numbers.items()} | {"weights": weights, "coverage": coverage}


def draw(fitted: SweepFit, path: Path) -> None:
    """Losses by size with the parabola's minima and the heaviest form's curve, a colour a budget."""
    figure = new_figure(7.5, 4.5)
    axes = figure.subplots()
    best = max(fitted.fits, key=lambda fit: fit.lack_of_fit[0])
    for budget in np.unique(fitted.points.budgets):
        mask = fitted.points.budgets == budget
        points = fitted.points.chosen(mask)
        order = np.argsort(points.parameters)
        dots = axes.scatter(points.parameters, points.losses[0], s=14, label=f"{budget:.2g} FLOPs")
        colour = dots.get_facecolor()
        line = best.losses(points.parameters[order], points.tokens[order])[0]
        axes.plot(points.parameters[order], line, color=colour, linewidth=1)
    low = [(valley.parameters, valley.loss) for valley in fitted.minima]
    axes.plot(*zip(*low, strict=True), "k+", label="minimum of the parabola")
    axes.set_xscale("log")
    axes.set_xlabel("parameters without embeddings")
    axes.set_ylabel(f"{fitted.config.metric}, {fitted.config.unit}")
    axes.set_title(f"isoflop curves, law: {best.form.name}")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None})


def _round(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float | np.floating) else value


FIT = Stage("science.fit", "2", make_fit)
"""2: intervals at larger budgets, and a page."""
