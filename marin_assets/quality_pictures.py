"""Small figures of quality tables: functions from numbers to a PNG file."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.figure

from marin_assets.pictures import DPI, INK

RULES_SHOWN = 16
COLOURS = ("#2b3a55", "#d1495b", "#edae49", "#66a182", "#8d96a3")


def rule_sets_png(drops: Mapping[str, Mapping[str, int]], documents: int, title: str, path: Path) -> None:
    """Horizontal bars: the share of documents that each rule is the first of its set to drop, a colour a set."""
    rows = [(name, reason, 100 * count / max(1, documents)) for name, found in drops.items() for reason, count in found.items()]
    rows = sorted(rows, key=lambda row: row[2])[-RULES_SHOWN:]
    colours = dict(zip(drops, COLOURS, strict=False))
    figure = matplotlib.figure.Figure(figsize=(7.5, 1.0 + 0.28 * max(1, len(rows))), layout="constrained")
    axes = figure.add_subplot()
    labels = [f"{name}: {reason}" for name, reason, _ in rows]
    bars = axes.barh(labels, [share for *_, share in rows], color=[colours.get(name, INK) for name, *_ in rows])
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    axes.set(xlabel="% of documents", title=title)
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)
