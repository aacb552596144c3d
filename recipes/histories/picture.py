"""Draw a history: phases along the tokens read, branches below, abandoned phases crossed out."""

from pathlib import Path

from lineage.figures import new_figure
from recipes.histories.phase import History

COLOURS = {"kept": "#2b3a55", "published": "#2e7d32", "abandoned": "#b03a2e"}


def draw(history: History, path: Path) -> None:
    """Write a PNG."""
    lanes = _lanes(history)
    figure = new_figure(10, 1.2 + 0.55 * (max(lanes.values()) + 1))
    axes = figure.subplots()
    total_tokens = max(history.tokens_at_start(phase) + phase.tokens for phase in history.phases) / 1e12
    for number, phase in enumerate(history.phases):
        start = history.tokens_at_start(phase) / 1e12
        end, lane, colour = start + phase.tokens / 1e12, -lanes[phase.name], COLOURS[phase.outcome]
        if phase.start is not None:
            axes.plot([start, start], [-lanes[phase.start.phase], lane], color="#999999", linewidth=1)
        axes.plot([start, end], [lane, lane], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot([end], [lane], color=colour, marker="x" if phase.outcome == "abandoned" else "o", markersize=7)
        label = phase.name + (f": {phase.reason}" if phase.reason else "")
        late = start > 0.7 * total_tokens and len(label) > 20
        height = 5 + 9 * (number % 2 if lane == 0 else 0)
        axes.annotate(
            label, (end if late else start, lane), (3, height), textcoords="offset points", fontsize=7,
            ha="right" if late else "left",
        )  # fmt: skip
    axes.set_yticks([])
    axes.set_ylim(-max(lanes.values()) - 0.5, 0.8)
    axes.set_xlabel("T tokens read by the weights")
    axes.set_title(f"{history.name}: red with a cross was abandoned, green was published")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _lanes(history: History) -> dict[str, int]:
    """Assign lanes: 0 for the path to the published phase and its successors, another lane for each branch."""
    main = {phase.name for phase in history.line_to(history.published.name)}
    lanes: dict[str, int] = {}
    for phase in history.phases:
        follows = phase.outcome == "kept" and phase.start is not None and phase.start.phase == history.published.name
        lanes[phase.name] = 0 if phase.name in main or follows else max(lanes.values(), default=0) + 1
    return lanes
