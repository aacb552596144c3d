"""Small figures of data artifacts: functions from numbers to a PNG file."""

from collections.abc import Mapping
from pathlib import Path

from lineage.figures import new_figure

INK = "#2b3a55"
DPI = 80


def drops_png(drops: Mapping[str, int], title: str, path: Path) -> None:
    """Draw horizontal bars: dropped documents by reason, largest on top."""
    rows = sorted(drops.items(), key=lambda item: item[1])[-12:]
    figure = new_figure(6, 0.8 + 0.32 * len(rows))
    axes = figure.add_subplot()
    bars = axes.barh([name for name, _ in rows], [count for _, count in rows], color=INK)
    axes.bar_label(bars, padding=3, fontsize=8)
    axes.set(xlabel="documents dropped", title=title)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)
