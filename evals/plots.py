"""Pictures of scores: functions from numbers to a PNG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.figure
from matplotlib.axes import Axes

INK = "#2b3a55"
ACCENT = "#d1495b"


def scores_png(scores: Sequence[Mapping], title: str, path: Path) -> None:
    """Bits per byte (held-out domains and gold answers) on the left, accuracies with their chance levels on the right."""
    bits = [s for s in scores if "bits_per_byte" in s["metric"]]
    accuracy = [s for s in scores if s["metric"] == "accuracy_per_byte"]
    chance = {s["task"]: s["value"] for s in scores if s["metric"] == "chance"}
    panels = [p for p in ("bits", "accuracy") if (bits if p == "bits" else accuracy)] or ["bits"]
    height = 1.0 + 0.3 * max(len(bits), len(accuracy), 2)
    figure = matplotlib.figure.Figure(figsize=(4.6 * len(panels), height), layout="constrained")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        if panel == "bits":
            _bars(axes, bits, "bits per byte (lower is better)")
        else:
            _bars(axes, accuracy, "accuracy, per-byte likelihood")
            for row, score in enumerate(reversed(accuracy)):
                if score["task"] in chance:
                    axes.plot([chance[score["task"]]] * 2, [row - 0.4, row + 0.4], color=ACCENT, linewidth=1.5)
            axes.set_xlim(0, 1)
            axes.set_title("red: chance", fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=90)


def _bars(axes: Axes, scores: Sequence[Mapping], label: str) -> None:
    rows = list(reversed(scores))
    values = [float(s["value"]) for s in rows]
    errors = [[v - float(s["low"]) for v, s in zip(values, rows, strict=True)],
              [float(s["high"]) - v for v, s in zip(values, rows, strict=True)]]  # fmt: skip
    axes.barh(range(len(rows)), values, xerr=errors, color=INK, height=0.6, ecolor="#8a97ad", capsize=2)
    axes.set_yticks(range(len(rows)), [s["task"] for s in rows], fontsize=8)
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
