"""The law of repetition of a sweep as an artifact: `repetition.json`, `repetition.png` and `repetition.md`.

The trials that repeat nothing give the law of size and tokens; those that repeat their data give R*.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.fit_sweep import FitConfig, fit_sweep
from science.forecasts.table import read_table
from science.laws.fit import Fit
from science.repetition import REPEATED, Repetition, effective_tokens, fit_repetition
from science.trials import RefusedSweepError, Trial, mixed

EPOCHS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class RepetitionConfig:
    """How R* is fitted; part of its identity."""

    law: FitConfig = field(default_factory=lambda: FitConfig(forms=("chinchilla",)))
    """Of the trials that repeat nothing. R* is fitted with its form that repeats of seeds support best."""
    level: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"repetition: level is {self.level}; it must be above 0 and below 1")


def make_repetition(out: Writer, config: RepetitionConfig, table: Artifact) -> None:
    """Fit the law, then R*. Raises: RefusedSweepError naming every fault of either half of the trials."""
    trials = [trial for trial in read_table(table) if trial.loss is not None]
    if faults := list(mixed(trials)):
        raise RefusedSweepError(faults)
    fresh = [trial for trial in trials if trial.epochs <= 1]
    again = [trial for trial in trials if trial.epochs > REPEATED]
    base = max(fit_sweep(fresh, config.law).fits, key=lambda fit: fit.lack_of_fit[0])
    repetition = fit_repetition(base, *_columns(again), config.level)
    facts = {
        "unit": config.law.unit,
        "level": config.level,
        "form": base.form.name,
        **asdict(repetition),
        "trials": {"fresh": len(fresh), "repeated": len(again), "between": len(trials) - len(fresh) - len(again)},
        "worth": {str(epochs): _worth(epochs, repetition.constant) for epochs in EPOCHS},
    }
    (out.folder / "repetition.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(again, base, repetition, out.folder / "repetition.png")
    (out.folder / "repetition.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra["repetition"] = facts
    out.record(rows_in=len(trials), rows_out=len(again))


def _columns(trials: list[Trial]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, tokens, epochs, losses."""
    names = ("parameters", "tokens", "epochs", "loss")
    one, two, three, four = (np.array([getattr(trial, name) for trial in trials], float) for name in names)
    return one, two, three, four


def _worth(epochs: float, constant: float) -> float:
    """Unique tokens that so many epochs over one token are worth."""
    return float(effective_tokens(epochs, 1.0, constant))


def draw(trials: list[Trial], base: Fit, repetition: Repetition, path: Path) -> None:
    """Measured losses by epochs, what the law says with R*, and what it would say if repeats counted as new tokens."""
    parameters, tokens, epochs, losses = _columns(trials)
    figure = new_figure(6.0, 3.8)
    axes = figure.subplots()
    for size in np.unique(parameters):
        mask = parameters == size
        order = np.argsort(epochs[mask])
        x, read = epochs[mask][order], tokens[mask][order]
        dots = axes.scatter(x, losses[mask][order], s=16, label=f"{size:.3g} parameters")
        colour = dots.get_facecolor()[0]
        axes.plot(x, base.losses(size, effective_tokens(read, read / x, repetition.constant))[0], color=colour, linewidth=1)
        axes.plot(x, base.losses(size, read)[0], color=colour, linewidth=1, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("epochs")
    axes.set_ylabel("loss")
    axes.legend(fontsize=7, title="dotted: if repeats were new tokens", title_fontsize=7)
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: dict[str, Any]) -> Iterator[str]:
    low, high = ("open" if facts[end] is None else f"{facts[end]:.3g}" for end in ("low", "high"))
    yield from (f"# {name}: R* = {facts['constant']:.3g} ({round(100 * facts['level'])} % interval {low} to {high})", "")
    counts = facts["trials"]
    yield f"{counts['repeated']} trials repeat their data, {counts['fresh']} repeat nothing and give the law ({facts['form']})."
    yield f"The test that the law holds has p {facts['p']:.3f}. {counts['between']} trials repeat too little to be used."
    yield from ("", "![Loss by epochs](repetition.png)", "", "| epochs | worth so many epochs of new tokens |", "|---|---|")
    yield from (f"| {epochs} | {worth:.2f} |" for epochs, worth in facts["worth"].items())


REPETITION = Stage("science.repetition", "1", make_repetition)
