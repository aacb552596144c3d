"""Pictures of scores: functions from numbers to a PNG file."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.scoring.statistics import graded_of, is_incomplete
from lineage.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

HELDOUT, MEAN, GOLD = "#2b3a55", "#7286a8", "#b9772e"
CHANCE = "#d1495b"
BITS = {
    "bits_per_byte": HELDOUT,
    "micro_bits_per_byte": HELDOUT,
    "macro_bits_per_byte": MEAN,
    "gold_bits_per_byte": GOLD,
    "weighted_bits_per_byte": HELDOUT,
}
SHARES = ("accuracy_per_byte", "exact_match", "pass_at_1")
"""Shares of right items: by likelihood, by an answer in the model's own words, by running its program."""
INTERVAL = "#111111"


def scores_png(scores: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Bits per byte (held-out domains and gold answers) on the left, accuracies with their chance levels on the right.

    `scores` are those of `scores.json`; a side without a score is left out. After each task stands how many documents
    or items it was measured on; a score that graded less than .9 of them is hatched. Raises: ValueError if there is
    neither side.
    """
    bits = [s for s in scores if s["metric"] in BITS]
    accuracies = [s for s in scores if s["metric"] in SHARES]
    panels = [(draw, chosen) for draw, chosen in ((_bits, bits), (_accuracies, accuracies)) if chosen]
    if not panels:
        raise ValueError(f"{title}: no score is in bits per byte or a share; there are {sorted({s['metric'] for s in scores})}")
    chance = {s["task"]: float(s["value"]) for s in scores if s["metric"] == "chance"}
    height = 1.3 + 0.3 * max(len(bits), len(accuracies), 2)
    figure = new_figure(5.2 * len(panels), height)
    for index, (draw, chosen) in enumerate(panels):
        draw(figure.add_subplot(1, len(panels), index + 1), chosen, chance)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=90)


def pass_at_k_png(curves: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """pass@k over k with its 95 % interval, one line a task. `curves` are those of the manifest (`PassCurve.to_json`)."""
    figure = new_figure(6.0, 3.6)
    axes = figure.add_subplot(1, 1, 1)
    for curve, colour in zip(curves, itertools.cycle((HELDOUT, GOLD, CHANCE, MEAN)), strict=False):
        ks = range(1, int(curve["samples"]) + 1)
        label = f"{curve['task']} ({curve['problems']} problems x {curve['samples']} samples)"
        axes.plot(ks, curve["values"], color=colour, label=label)
        axes.fill_between(ks, curve["lows"], curve["highs"], color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1)
    axes.set_xlabel("k", fontsize=8)
    axes.set_ylabel("pass@k; band: 95 % over problems", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=90)


def _bits(axes: "Axes", scores: Sequence[Mapping[str, Any]], chance: Mapping[str, float]) -> None:
    del chance  # A likelihood has no chance level.
    names = {
        "bits_per_byte": "held-out text, all bytes",
        "macro_bits_per_byte": "mean of its leaves",
        "gold_bits_per_byte": "gold answers",
    }
    _bars(axes, scores, [BITS[s["metric"]] for s in scores])
    axes.set_xlabel("bits per byte, lower is better; line: 95 % interval", fontsize=8)
    shown = [metric for metric in names if any(s["metric"] == metric for s in scores)]
    from matplotlib.patches import Patch

    _legend(axes, [Patch(color=BITS[metric], label=names[metric]) for metric in shown])


def _accuracies(axes: "Axes", scores: Sequence[Mapping[str, Any]], chance: Mapping[str, float]) -> None:
    _bars(axes, scores, [GOLD] * len(scores))
    for row, score in enumerate(scores):
        if score["task"] in chance:
            axes.plot([chance[score["task"]]] * 2, [row - 0.42, row + 0.42], color=CHANCE, linewidth=2)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of items that are right; line: 95 % interval", fontsize=8)
    from matplotlib.lines import Line2D

    _legend(axes, [Line2D([], [], color=CHANCE, linewidth=2, label="chance")])


def _bars(axes: "Axes", scores: Sequence[Mapping[str, Any]], colours: Sequence[str]) -> None:
    """One bar for each score, the first on top, with its interval and its items; hatched if too few were graded."""
    values = [float(s["value"]) for s in scores]
    below = [value - float(s["low"]) for value, s in zip(values, scores, strict=True)]
    above = [float(s["high"]) - value for value, s in zip(values, scores, strict=True)]
    attempted = [int(s.get("attempted", s["n"])) for s in scores]  # Older evaluators do not record it.
    bars = axes.barh(range(len(scores)), values, color=colours, height=0.62)
    for bar, s, attempts in zip(bars, scores, attempted, strict=True):
        if is_incomplete(int(s["n"]), attempts):
            bar.set(facecolor="white", edgecolor=bar.get_facecolor(), hatch="////")
    axes.errorbar(values, range(len(scores)), xerr=[below, above], fmt="none", ecolor=INTERVAL, elinewidth=1, capsize=2.5)
    labels = [f"{s['task']} ({graded_of(int(s['n']), attempts)})" for s, attempts in zip(scores, attempted, strict=True)]
    axes.set_yticks(range(len(scores)), labels, fontsize=8)
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: "Axes", handles: "Sequence[Artist]") -> None:
    axes.legend(handles=handles, fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
