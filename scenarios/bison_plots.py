"""Pictures of the replay: functions from numbers to a PNG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.ticker
import numpy as np
import polars as pl

from lineage.figures import new_figure
from scenarios.judgement import Difference
from scenarios.shuffles import PhaseShift
from scenarios.surprisal import Estimate

BISON, TWIN, INK, GREY = "#8b2c4a", "#2b5c9e", "#2b3a55", "#9aa3b2"
BLOCKS = ("#2b3a55", "#b9772e", "#7fa88b", "#c9c1b3")
DPI = 100


def reads_png(reads: pl.DataFrame, num_steps: int, path: Path) -> None:
    """Draw one row for each item, with a tick at every step that read it. The earliest read is on top."""
    first = reads.group_by("item_id").agg(first=pl.col("step").min()).sort("first", "item_id").with_row_index("line")
    lines = reads.join(first, on="item_id", maintain_order="left")["line"]
    figure = new_figure(9, 1.2 + 0.075 * max(12, first.height))
    axes = figure.add_subplot()
    axes.scatter(reads["step"].to_numpy(), lines.to_numpy(), marker="|", s=14, color=BISON, linewidth=0.9)
    axes.set(xlim=(0, num_steps), ylim=(first.height, -1), xlabel="step of Bison", ylabel=f"{first.height} leaked items")
    axes.set_yticks([])
    _clean(axes)
    figure.savefig(path, dpi=DPI)


def surprisal_png(differences: Sequence[Difference], path: Path) -> None:
    """Draw bits per byte of Bison and its clean twin (left) and their paired difference (right), with 95 % intervals."""
    figure = new_figure(10, 0.9 + 0.5 * len(differences))
    left, right = figure.subplots(1, 2, sharey=True)
    for row, each in enumerate(differences):
        _interval(left, row - 0.12, each.bison, BISON, "Bison" if row == 0 else None)
        _interval(left, row + 0.12, each.twin, TWIN, "clean twin" if row == 0 else None)
        _interval(right, row, each.difference, INK, None)
    left.set_yticks(range(len(differences)), [f"{each.form} form, {each.group} items" for each in differences])
    left.set_ylim(len(differences) - 0.5, -0.5)
    left.set_xlabel("bits per byte of the answer")
    left.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    right.axvline(0, color=GREY, linewidth=1, linestyle="--")
    right.set_xlabel("Bison minus clean twin (below 0: surprised less)")
    for axes in (left, right):
        _clean(axes)
    figure.savefig(path, dpi=DPI)


def composition_png(shift: PhaseShift, path: Path) -> None:
    """Draw each block's share by window for the worst linear key, one panel for each shuffle, and the ratios over all keys."""
    figure = new_figure(11, 6)
    panels = figure.subplots(2, 3, squeeze=False)
    names = list(shift.counts)
    for axes, (kind, each) in zip(panels[0], shift.traversals.items(), strict=True):
        windows = np.arange(len(each.shares) + 1)
        edges = np.concatenate([np.zeros((len(each.shares), 1)), np.cumsum(each.shares, axis=1)], axis=1)
        for number, name in enumerate(names):
            low, high = (np.append(edge, edge[-1]) for edge in (edges[:, number], edges[:, number + 1]))
            axes.fill_between(windows, low, high, step="post", color=BLOCKS[number % len(BLOCKS)], label=name)
        axes.set(
            xlim=(0, len(each.shares)), ylim=(0, 1), xlabel="window of training", title=f"{kind}: {each.ratio:.2f} x chance"
        )
    panels[0][0].set_ylabel(f"share of a block (mixture seed {shift.seed})")
    panels[0][2].legend(fontsize=7, loc="lower right", framealpha=0.9)
    low = min(each.ratios[each.ratios > 0].min() for each in shift.compositions.values())
    bins = np.geomspace(low, max(each.ratios.max() for each in shift.compositions.values()) * 1.05, 30)
    for axes, (kind, each) in zip(panels[1], shift.compositions.items(), strict=True):
        axes.hist(each.ratios, bins=bins, color=INK)
        axes.axvline(1, color=BISON, linewidth=1, linestyle="--")
        axes.set(xscale="log", xlabel="variance of shares / that of chance", title=f"{kind}, {len(each.ratios)} keys")
        axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        _clean(axes)
    panels[1][0].set_ylabel("keys")
    figure.savefig(path, dpi=DPI)


def losses_png(shift: PhaseShift, path: Path) -> None:
    """Draw the training loss by window under the linear and the default permutation, with equal data and start."""
    figure = new_figure(9, 3.4)
    axes = figure.add_subplot()
    colours: Mapping[str, str] = {"linear": BISON, "splitmix": TWIN}
    for kind, colour in colours.items():
        losses = next(each.losses for name, each in shift.traversals.items() if name == kind)
        assert losses is not None  # the caller has trained both
        axes.plot(np.arange(len(losses)), losses, color=colour, linewidth=1.6, marker="o", markersize=3, label=kind)
    axes.set(xlabel="window of training", ylabel="training loss (nats a token)")
    axes.legend(frameon=False)
    axes.grid(axis="y", color="#eceff4")
    _clean(axes)
    figure.savefig(path, dpi=DPI)


def _interval(axes, row: float, each: Estimate, colour: str, label: str | None) -> None:
    below, above = each.value - each.low, each.high - each.value
    axes.errorbar([each.value], [row], xerr=[[below], [above]], fmt="o", color=colour, markersize=4, capsize=2.5, label=label)


def _clean(axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
