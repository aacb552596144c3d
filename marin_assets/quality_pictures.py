"""Small figures of quality tables: functions from numbers to a PNG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lineage.figures import new_figure
from marin_assets.pictures import DPI, INK

RULES_SHOWN = 16
COLOURS = ("#2b3a55", "#d1495b", "#edae49", "#66a182", "#8d96a3")


def rule_sets_png(drops: Mapping[str, Mapping[str, int]], documents: int, title: str, path: Path) -> None:
    """Draw horizontal bars: the share of documents that each rule is the first of its set to drop, one colour a set."""
    rows = [
        (name, reason, 100 * count / max(1, documents)) for name, reasons in drops.items() for reason, count in reasons.items()
    ]
    rows = sorted(rows, key=lambda row: row[2])[-RULES_SHOWN:]
    colours = dict(zip(drops, COLOURS, strict=False))
    figure = new_figure(7.5, 1.0 + 0.28 * max(1, len(rows)))
    axes = figure.add_subplot()
    labels = [f"{name}: {reason}" for name, reason, _ in rows]
    bars = axes.barh(labels, [share for *_, share in rows], color=[colours.get(name, INK) for name, *_ in rows])
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    axes.set(xlabel="% of documents", title=title)
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)


def reliability_png(table: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw the share of good seeds over the predicted probability; a calibrated scorer is on the diagonal."""
    figure = new_figure(4.4, 4.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="#8d96a3", linewidth=1, linestyle="--", label="calibrated")
    predicted, positive = [row["predicted"] for row in table], [row["positive"] for row in table]
    axes.plot(predicted, positive, marker="o", color=INK, linewidth=1.5, label="held-out seeds")
    for row in table:
        axes.annotate(
            str(row["documents"]), (row["predicted"], row["positive"]), (4, -11), textcoords="offset points", fontsize=7
        )
    axes.set(xlabel="predicted probability", ylabel="share of good seeds", xlim=(-0.03, 1.06), ylim=(-0.06, 1.06), title=title)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)


def deciles_png(deciles: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw range and mean of the scores of each decile."""
    figure = new_figure(6, 2.6)
    axes = figure.add_subplot()
    places = [row["decile"] for row in deciles]
    axes.bar(
        places,
        [row["high"] - row["low"] for row in deciles],
        bottom=[row["low"] for row in deciles],
        color="#c9d2e3",
        width=0.7,
    )
    axes.plot(places, [row["mean"] for row in deciles], color=INK, marker="o", markersize=4, linewidth=1.2, label="mean")
    axes.set(xlabel="decile of the documents", ylabel="score", ylim=(-0.03, 1.03), xticks=places, title=title)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)
