"""The proposal of a round as an artifact: `round.json`, `round.png` and `round.md`, a page with what was known and chosen.

Every trial of the round has it as an input, so the lineage of a trial holds the results that chose it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.table import read_table
from science.search.proposers import NextBudget, Proposed, Proposer, propose_round
from science.trials import Trial

ROUND_FILE = "round.json"
ROUND = "round"
"""Entry of a manifest's `extra`."""


@dataclass(frozen=True)
class RoundConfig:
    """Which round it is, and how its trials are chosen."""

    number: int
    proposer: Proposer

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"round number is {self.number}; the first round that is proposed is 1")


def make_round(out: Writer, config: RoundConfig, table: Artifact) -> None:
    """Propose the trials of a round from all trials before it. Raises: RefusedSweepError naming why nothing can be proposed."""
    trials = read_table(table)
    proposed = propose_round(config.proposer, trials, table.data_version, config.number)
    best = min((trial for trial in trials if trial.loss is not None), key=lambda trial: trial.loss or 0.0)
    facts = {
        "number": config.number,
        "by": config.proposer.kind if isinstance(config.proposer, NextBudget) else config.proposer.method,
        "table": table.data_version,
        "known": len(trials),
        "infeasible": [trial.name for trial in trials if trial.loss is None],
        "best": {"name": best.name, "loss": best.loss},
        "trials": [{"name": each.name, "values": dict(each.values)} for each in proposed],
    }
    (out.folder / ROUND_FILE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(trials, facts["trials"], out.folder / "round.png")
    (out.folder / "round.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra[ROUND] = facts
    out.record(rows_in=len(trials), rows_out=len(proposed))


def proposed_in(artifact: Artifact) -> list[Proposed]:
    """The trials of a proposal, in order."""
    return [Proposed(each["name"], each["values"]) for each in artifact.manifest.extra[ROUND]["trials"]]


def draw(trials: Sequence[Trial], proposed: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Losses over each setting that varies; diverged trials at the top, proposed ones as lines."""
    names = list(proposed[0]["values"])
    shown = [name for name in names if name != "seed"]
    figure = new_figure(4.0 * len(shown), 3.2)
    ended = np.array([trial.loss is not None for trial in trials])
    losses = np.array([np.nan if trial.loss is None else trial.loss for trial in trials], float)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        values = np.array([getattr(trial, name) for trial in trials], float)
        axes.plot(values[ended], losses[ended], "o", label="measured")
        if not ended.all():
            axes.plot(values[~ended], np.full((~ended).sum(), np.nanmax(losses)), "x", color="C3", label="diverged")
        for each in proposed:
            axes.axvline(each["values"][name], color="C1", linewidth=1)
        if (values > 0).all():
            axes.set_xscale("log")
        axes.set_xlabel(name.replace("_", " "))
        axes.set_ylabel("loss")
        axes.legend(fontsize=7, title="lines: proposed", title_fontsize=7)
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: Mapping[str, Any]) -> Iterator[str]:
    best = facts["best"]
    yield from (f"# {name}", "", f"Round {facts['number']}, by {facts['by']}, from {facts['known']} trials.", "")
    yield f"The lowest loss so far is {best['loss']:.5f}, of {best['name']}. It is one noisy measurement."
    if facts["infeasible"]:
        yield f"Diverged, and avoided: {', '.join(facts['infeasible'])}."
    settings = list(facts["trials"][0]["values"])
    yield from ("", "![What was measured and what is proposed](round.png)", "", f"| trial | {' | '.join(settings)} |")
    yield "|---" * (1 + len(settings)) + "|"
    for each in facts["trials"]:
        yield f"| {each['name']} | {' | '.join(f'{each["values"][setting]:g}' for setting in settings)} |"


ROUND_PROPOSAL = Stage("science.round", "1", make_round)
