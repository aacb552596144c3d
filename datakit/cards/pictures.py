"""Figures of a source's card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datakit.cards.tables import Lengths
from lineage.figures import new_figure

INK, PALE, RED = "#2b3a55", "#c9d2e3", "#d1495b"
DPI = 80


def lengths_png(lengths: Lengths, path: Path, title: str = "") -> None:
    """Histogram of document lengths, with the median; the axis is logarithmic if the lengths span two powers of ten."""
    figure = new_figure(7, 2.5)
    axes = figure.add_subplot()
    low, high = max(1, int(lengths.characters[0])), int(lengths.characters[-1]) + 1
    scale, space = ("log", np.geomspace) if high >= 100 * low else ("linear", np.linspace)
    bins = space(low, max(high, low + 1), 40)
    counts, edges = np.histogram(lengths.characters, bins=bins, weights=lengths.documents)
    axes.stairs(counts, edges, fill=True, color=INK)
    median = lengths.quantile(0.5)
    axes.axvline(median, color=RED, linewidth=1, label=f"median {median:,.0f}")
    axes.set(xscale=scale, xlabel="characters in a document", ylabel="documents", title=title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    _save(figure, axes, path)


def fates_png(fates: Mapping[str, int], path: Path) -> None:
    """Draw what became of the records as horizontal bars: at most 14 groups, the largest on top."""
    rows = sorted(fates.items(), key=lambda item: item[1])[-14:]
    figure = new_figure(7, 0.7 + 0.27 * len(rows))
    axes = figure.add_subplot()
    colours = [INK if name in ("train", "held out") else RED for name, _ in rows]
    bars = axes.barh([name for name, _ in rows], [count for _, count in rows], color=colours)
    axes.bar_label(bars, labels=[f"{count:,}" for _, count in rows], padding=3, fontsize=8)
    axes.set(xlabel="records", xscale="symlog")
    axes.margins(x=0.12)
    _save(figure, axes, path)


def deciles_png(deciles: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Range and mean of the scores of each decile."""
    figure = new_figure(7, 2.4)
    axes = figure.add_subplot()
    places, low = [row["decile"] for row in deciles], [row["low"] for row in deciles]
    axes.bar(places, [row["high"] - row["low"] for row in deciles], bottom=low, color=PALE, width=0.7)
    axes.plot(places, [row["mean"] for row in deciles], color=INK, marker="o", markersize=4, linewidth=1.2)
    axes.set(xlabel="decile of the documents", ylabel="score", ylim=(-0.03, 1.03), xticks=places)
    _save(figure, axes, path)


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
