"""Small figures of data artifacts: functions from numbers to a PNG file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lineage.figures import new_figure

INK = "#2b3a55"
DPI = 80


def drops_png(drops: Mapping[str, int], title: str, path: Path) -> None:
    """Horizontal bars: dropped documents by reason, largest on top."""
    rows = sorted(drops.items(), key=lambda item: item[1])[-12:]
    figure = new_figure(6, 0.8 + 0.32 * len(rows))
    axes = figure.add_subplot()
    bars = axes.barh([name for name, _ in rows], [count for _, count in rows], color=INK)
    axes.bar_label(bars, padding=3, fontsize=8)
    axes.set(xlabel="documents dropped", title=title)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)


def lengths_png(characters: np.ndarray, title: str, path: Path) -> None:
    """Histogram of document lengths on a logarithmic axis, with the median."""
    figure = new_figure(6, 2.6)
    axes = figure.add_subplot()
    low, high = max(1, int(characters.min())), int(characters.max()) + 1
    counts, edges = np.histogram(characters, bins=np.geomspace(low, max(high, low + 1), 40))
    axes.stairs(counts, edges, fill=True, color=INK)
    median = float(np.median(characters))
    axes.axvline(median, color="#d1495b", linewidth=1, label=f"median {median:,.0f}")
    axes.set(xscale="log", xlabel="characters in a document", ylabel="documents", title=title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)
