"""Draw a history: phases along the tokens read, branches below, abandoned phases crossed out."""

from pathlib import Path

from lineage.figures import new_figure
from recipes.histories.phase import History, Outcome, Phase

COLOURS: dict[Outcome, str] = {
    "kept": "#2b3a55",
    "published": "#2e7d32",
    "final": "#2e7d32",
    "planned": "#7b8794",
    "compared": "#8a6d3b",
    "abandoned": "#b03a2e",
}
WORDS: dict[Outcome, str] = {
    "published": "green was published",
    "final": "green is the result",
    "planned": "grey is a plan",
    "compared": "brown was run for comparison",
    "abandoned": "red with a cross was abandoned",
}
WIDEST_LABEL = 75


def draw(history: History, path: Path) -> None:
    """Write a PNG."""
    lanes = _lanes(history)
    figure = new_figure(10, 1.4 + 0.55 * (max(lanes.values()) + 1))
    axes = figure.subplots()
    total = max(history.tokens_at_start(phase) + phase.tokens for phase in history.phases)
    unit, name = (1e12, "T") if total >= 1e12 else (1e9, "B")
    for number, phase in enumerate(history.phases):
        start = history.tokens_at_start(phase) / unit
        end, lane, colour = start + phase.tokens / unit, -lanes[phase.name], COLOURS[phase.outcome]
        if phase.start is not None:
            axes.plot([start, start], [-lanes[phase.start.phase], lane], color="#999999", linewidth=1, zorder=1)
        axes.plot([start, end], [lane, lane], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot([end], [lane], color=colour, marker="x" if phase.outcome == "abandoned" else "o", markersize=7)
        label = _label(phase)
        late = start > 0.7 * total / unit and len(label) > 20
        height = 5 + 9 * (number % 2 if lane == 0 else 0)
        axes.annotate(
            label, (end if late else start, lane), (-6 if late else 3, height), textcoords="offset points", fontsize=7,
            ha="right" if late else "left", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    axes.set_yticks([])
    axes.set_ylim(-max(lanes.values()) - 0.5, 0.8)
    axes.set_xlabel(f"{name} tokens read by the weights")
    outcomes = [WORDS[outcome] for outcome in WORDS if any(phase.outcome == outcome for phase in history.phases)]
    axes.set_title(f"{history.name}: {', '.join(outcomes)}", fontsize=10)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _label(phase: Phase) -> str:
    """The name, then why it was abandoned, or else what was measured."""
    shown = phase.reason or phase.measured
    resumed = " (resumed after crashes)" if phase.resumes else ""
    label = phase.name + resumed + (f": {shown}" if shown else "")
    return label if len(label) <= WIDEST_LABEL else label[: WIDEST_LABEL - 4].rsplit(" ", 1)[0].rstrip(",:") + " ..."


def _lanes(history: History) -> dict[str, int]:
    """Assign lanes: 0 for the path to the phase that ends the run and its successors, another lane for each branch."""
    main = {phase.name for phase in history.line_to(history.end.name)}
    lanes: dict[str, int] = {}
    for phase in history.phases:
        follows = phase.outcome == "kept" and phase.start is not None and phase.start.phase == history.end.name
        lanes[phase.name] = 0 if phase.name in main or follows else max(lanes.values(), default=0) + 1
    return lanes
