"""Pictures of an audit: when training read the documents that hold items, and how the groups of items score."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evals.audit.scores import GROUPS
from lineage.figures import new_figure
from lineage.match_tiers import TIERS

TIER_COLOURS = dict(zip(TIERS, ("#d1495b", "#e08e45", "#b9a13d", "#7fa58a", "#9db0cf"), strict=True))
GROUP_COLOURS = dict(zip(GROUPS, ("#2b3a55", "#7286a8", "#9db0cf", "#b9a13d", "#b9772e", "#d1495b"), strict=True))
BINS = 60


def exposures_png(exposed: pl.DataFrame, steps: Sequence[int], path: Path) -> None:
    """Reads of matching documents by step, stacked by tier; the runs that led to the checkpoint follow each other.

    `exposed` has `leg`, `step`, `tier`; `steps` [legs] is the number of steps of each run.
    """
    from matplotlib.ticker import MaxNLocator

    starts = np.concatenate([[0], np.cumsum(steps)])
    figure = new_figure(8, 2.6)
    axes = figure.add_subplot()
    edges = np.linspace(0, starts[-1], min(BINS, int(starts[-1])) + 1)
    shown = [tier for tier in TIERS if (exposed["tier"] == tier).any()]
    places = [_steps_so_far(exposed.filter(pl.col("tier") == tier), starts) for tier in shown]
    axes.hist(places, bins=edges.tolist(), stacked=True, color=[TIER_COLOURS[tier] for tier in shown], label=shown)
    for start in starts[1:-1]:
        axes.axvline(start, color="#111111", linewidth=1, linestyle="--")
    axes.set_xlabel(
        "step" if len(steps) == 1 else "step over all runs; dashed: a run that starts from the one before", fontsize=8
    )
    axes.set_ylabel("reads", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, ncols=len(shown), loc="lower right", bbox_to_anchor=(1.0, 1.0))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)


def _steps_so_far(rows: pl.DataFrame, starts: np.ndarray) -> np.ndarray:
    return starts[rows["leg"].to_numpy()] + rows["step"].to_numpy()


def effects_png(by_task: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Mean bits per byte of gold answers by task and group, with 95 % intervals and the number of items."""
    rows = [
        (task, group, entry["groups"][group]) for task, entry in by_task.items() for group in GROUPS if group in entry["groups"]
    ]
    figure = new_figure(8, 0.9 + 0.24 * len(rows))
    axes = figure.add_subplot()
    values = np.array([row["bits_per_byte"] for _, _, row in rows])
    axes.errorbar(
        values[:, 0], range(len(rows)), xerr=np.abs(values[:, 1:] - values[:, :1]).T, fmt="none", ecolor="#111111", elinewidth=1
    )
    axes.scatter(values[:, 0], range(len(rows)), color=[GROUP_COLOURS[group] for _, group, _ in rows], zorder=3)
    axes.set_yticks(range(len(rows)), [f"{task}: {group} ({row['items']:,})" for task, group, row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("bits per byte of the gold answer, lower is better; line: 95 % interval", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#eceff4")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)
