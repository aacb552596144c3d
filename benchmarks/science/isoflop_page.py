"""The page of an isoflop study: rates, trials, the law, forecasts with their verdicts, and how they did together."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.science.isoflop_study import Study, method, table_and_fit
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from science.fit_sweep import SweepFit, fit_sweep
from science.forecasts.joint import BOUNDS, joint_forecast
from science.forecasts.scoring import better, rules
from science.forecasts.table import read_table
from science.forecasts.verdict import write_page
from science.paired import best_rate
from science.trials import Fault, Trial

PIN = 1.6
"""Nats; the asymptote at which Marin pinned the law of its v16 sweep (`science.published`)."""


def write_study_page(
    page: Path,
    store: Store,
    study: Study,
    multiplier: float,
    rates: dict[str, dict[float, float | None]],
    verdicts: Sequence[Artifact],
    faults: Sequence[Fault],
) -> None:
    """Write PAGE, and beside it the law's picture and the page of verdicts."""
    table, fit = table_and_fit(study, multiplier)
    trials = read_table(resolve(store, table))
    lines = [f"# {study.name}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC", "", *_rates(rates, multiplier)]
    lines += ["", *_trials(trials), ""]
    if faults:
        lines += ["## No law and no forecast", "", *(f"- `{fault.name}`: {fault.what}" for fault in faults)]
    else:
        law = resolve(store, fit)
        page.with_suffix(".png").write_bytes(law.file("law.png").read_bytes())
        text = law.file("law.md").read_text().replace("(law.png)", f"({page.with_suffix('.png').name})")
        lines += [text.replace("\n# ", "\n## "), "", *_held_out(study, trials, verdicts)]
        write_page(page.with_name(f"{study.name}-verdicts.md"), list(verdicts))
    page.write_text("\n".join(lines) + "\n")


def rate_doubts(rates: dict[str, dict[float, float | None]]) -> list[str]:
    """Why the rate of a budget may not be the best one: at the edge of the grid, or too few rates that did not diverge."""
    doubts = []
    for name, each in rates.items():
        try:
            best_rate(each)
        except ValueError as error:
            doubts.append(f"{name}: {error}")
    return doubts


def _rates(rates: dict[str, dict[float, float | None]], multiplier: float) -> list[str]:
    shown = lambda loss: "diverged" if loss is None else f"{loss:.4f}"  # noqa: E731
    columns = sorted({rate for each in rates.values() for rate in each})
    head = f"| times the rule | {' | '.join(f'{rate:g}' for rate in columns)} |"
    rows = [f"| {name} | {' | '.join(shown(each.get(rate)) for rate in columns)} |" for name, each in rates.items()]
    return [
        "## Learning rate",
        "",
        head,
        "|---" * (len(columns) + 1) + "|",
        *rows,
        "",
        f"Chosen: {multiplier:g} times the rule.",
        *(f"- **In doubt**: {doubt}" for doubt in rate_doubts(rates)),
    ]


def _trials(trials: Sequence[Trial]) -> list[str]:
    rows = [
        f"| {trial.name} | {trial.parameters:,} | {trial.tokens:,.0f} | {trial.flops:.4g} | {trial.epochs:.2f} | "
        f"{'diverged' if trial.loss is None else f'{trial.loss:.4f}'} |"
        for trial in trials
    ]
    return ["## Trials", "", "| trial | parameters | tokens | FLOPs | epochs | loss |", "|---" * 6 + "|", *rows]


def _held_out(study: Study, trials: Sequence[Trial], verdicts: Sequence[Artifact]) -> list[str]:
    columns = ("run", "times the largest budget", "forecast", "90 % interval", "half-width", "measured", "verdict")
    lines = ["## Held-out runs", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    frozen = [each.input("forecast").manifest.extra["forecast"] for each in verdicts]
    judged = [each.manifest.extra["verdict"] for each in verdicts]
    for forecast, verdict in zip(frozen, judged, strict=True):
        low, high = forecast["intervals"]["0.9"]
        measured = "-" if verdict["measured"] is None else f"{verdict['measured']:.4f}"
        lines.append(
            f"| {forecast['target']['name']} | {forecast['ratio']:.2f} | {forecast['point']:.4f} | {low:.4f} to {high:.4f} | "
            f"{(high - low) / 2:.4f} | {measured} | {verdict['outcome']} {verdict['why']} |"
        )
    if not judged or any(each["measured"] is None for each in judged):
        return [*lines, "", "No joint test: a held-out run has no loss."]
    return [*lines, "", *together(fit_sweep(trials, method(study)), frozen, [each["measured"] for each in judged])]


def together(fitted: SweepFit, frozen: Sequence[Mapping[str, Any]], measured: Sequence[float]) -> Iterator[str]:
    """How the forecasts did together: their joint test, their interval score beside simpler rules, and what they missed."""
    sizes, tokens, budgets = ([each["target"][name] for each in frozen] for name in ("parameters", "tokens", "flops"))
    stretches = {form: [each["coverage"][form]["stretch"] for each in frozen] for form in frozen[0]["coverage"]}
    joint = joint_forecast(fitted.fits, sizes, tokens, stretches).test(measured)
    intervals = [tuple(each["intervals"]["0.9"]) for each in frozen]
    scored = rules(fitted, intervals, budgets, measured, min(PIN, 0.95 * float(np.min(fitted.points.losses))))
    yield from ("## Together", "", "| test of the errors | p |", "|---|---|")
    yield f"| all {joint.runs} runs under the forecast's covariance (statistic {joint.statistic:.2f}) | {joint.p:.4f} |"
    yield f"| means of the budgets | {joint.budgets:.4f} |"
    if joint.seeds is not None:
        yield f"| differences between seeds, by the noise of the trials | {joint.seeds:.4f} |"
        yield f"| means of the budgets, by the noise that these runs show | {joint.own_noise:.4f} |"
    yield from ("", "| rule | mean interval score (lower is better) | mean half-width |", "|---|---|---|")
    yield from (f"| {rule.name} | {rule.score:.4f} | {rule.half_width:.4f} |" for rule in scored)
    yield from (
        "",
        f"- **{'Met' if joint.holds else 'Missed'}**: the joint p, {joint.p:.4f}, between {BOUNDS[0]} and {BOUNDS[1]}.",
    )
    beaten = better(scored)
    yield from (
        f"- **{'Met' if rule.name in beaten else 'Missed'}**: a better interval score than {rule.name}." for rule in scored[1:]
    )
