"""How well surrogates predict runs of a swarm that they did not see, as an artifact with a picture."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.mixtures.runs import SwarmRuns, read_runs
from science.mixtures.surrogates import SURROGATES, cross_validated, unseen


@dataclass(frozen=True)
class SwarmFitConfig:
    """Which surrogates are compared; RegMix's trees are the peer."""

    surrogates: tuple[str, ...] = ("crossed", "log_linear", "quadratic", "regmix")
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.surrogates or (unknown := sorted(set(self.surrogates) - set(SURROGATES))):
            raise ValueError(f"surrogates are {self.surrogates}; give some of {', '.join(SURROGATES)} (unknown: {unknown})")


def compare_surrogates(out: Writer, config: SwarmFitConfig, table: Artifact) -> None:
    """Write `fit.json` with the cross-validated error of every surrogate by target, and `fit.png`.

    The error is in the unit of the loss; `spread` is the error of predicting the mean of all runs.
    """
    runs = read_runs(table)
    rows, chosen = [], {}
    for target, losses in runs.losses.items():
        errors = {name: cross_validated(name, runs.weights, losses, config.seed).error for name in config.surrogates}
        chosen[target] = min(errors, key=errors.__getitem__)
        rows.append({"target": target, "spread": float(losses.std()), "errors": errors, "best": chosen[target]})
    (out.folder / "fit.json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(runs, chosen, config.seed, out.folder / "fit.png")
    out.extra["fit"] = {"runs": len(runs.names), "targets": rows}
    out.record(rows_in=len(runs.names), rows_out=len(rows))


def draw(runs: SwarmRuns, best: dict[str, str], seed: int, path: Path) -> None:
    """Measured against predicted loss of runs that the surrogate did not see, a panel a target."""
    figure = new_figure(4.2 * len(best), 4.0)
    for number, (target, surrogate) in enumerate(best.items(), 1):
        axes = figure.add_subplot(1, len(best), number)
        predicted = unseen(surrogate, runs.weights, runs.losses[target], seed)
        repeated = np.array([bool(anchor) for anchor in runs.anchors])
        axes.scatter(runs.losses[target][~repeated], predicted[~repeated], s=12, label="designs")
        axes.scatter(runs.losses[target][repeated], predicted[repeated], s=16, marker="+", label="repeats at anchors")
        ends = [runs.losses[target].min(), runs.losses[target].max()]
        axes.plot(ends, ends, color="grey", linewidth=1)
        axes.set_xlabel("measured")
        axes.set_ylabel(f"predicted by {surrogate}")
        axes.set_title(target, fontsize=9)
        axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None})


SWARM_FIT = Stage(
    "science.swarm_fit",
    "3",
    compare_surrogates,
    description="Error of every surrogate on runs of a swarm that it did not see.",
    checks=("file_set",),
)
