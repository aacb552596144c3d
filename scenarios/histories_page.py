"""The page of `make histories`: verdict, declared graph, curves of the replay and exposures, in one file that works offline."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure
from recipes.histories.picture import COLOURS, draw
from scenarios.bison_page import COLOURS as MARK_COLOURS
from scenarios.bison_page import DETAILS_STYLE, MARKS
from scenarios.evidence import Evidence, failures
from scenarios.histories import PhaseRun, ReplayedHistory
from scenarios.history_specs import BISON, MANTIS_END

ABOUT = (
    "Steps and sequences a step are a thousandth of the declared ones; rules, clips, guards, warm starts and the shape of the "
    "schedules are the declared ones. The model, its sequences and the peak rate are small, three sources of the lab stand for "
    "the datasets, and the abandoned rescues of phase 2 are not replayed. Losses of different mixes are not comparable."
)


def write_histories_page(path: Path, replayed: ReplayedHistory) -> Path:
    """Write the page; the file appears atomically."""
    expected = [each for each in replayed.evidence if each.holds is not None]
    facts = {
        "expectations that hold": f"{len(expected) - len(failures(replayed.evidence))} of {len(expected)}",
        "phases": str(len(replayed.runs)),
        "reads of leaked items by Bison": str(replayed.reads[BISON].height),
        "reads of leaked items by Mantis": str(replayed.reads[MANTIS_END].height),
    }
    with tempfile.TemporaryDirectory() as folder:
        text = page("The 32B history at a thousandth", facts, _sections(Path(folder), replayed))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def _sections(folder: Path, replayed: ReplayedHistory) -> list[tuple[str, str]]:
    graph, curves = folder / "graph.png", folder / "curves.png"
    draw(replayed.history, graph)
    curves_png(replayed, curves)
    reads = replayed.reads[BISON]
    rows = [(item, document, phase, str(step), str(row)) for item, document, phase, step, row in reads.iter_rows()]
    exposure = Table(("item", "document", "phase", "step", "row"), rows, frozenset({"step", "row"})).html()
    none = f"<p>Mantis: {replayed.reads[MANTIS_END].height} reads.</p>"
    return [
        ("What was claimed and what was found", f"<p>{html.escape(ABOUT)}</p>" + _evidence(replayed.evidence)),
        ("The declared graph", image(graph)),
        ("Training loss", image(curves) + _table(replayed.runs).html()),
        ("When Bison read the leaked items", exposure + none),
    ]


def _evidence(evidence: Sequence[Evidence]) -> str:
    parts = []
    for each in evidence:
        mark = f'<b style="color:{MARK_COLOURS[each.holds]}">{MARKS[each.holds]}</b>'
        details = f'<div style="{DETAILS_STYLE}">{html.escape(each.details)}</div>' if each.details else ""
        parts.append(f"<div>{mark} {html.escape(each.claim)}</div>{details}")
    return "".join(parts)


def _table(runs: Sequence[PhaseRun]) -> Table:
    numbers = ("first step", "steps", "parameters", "first loss", "last loss")
    rows = [
        (
            run.name,
            run.outcome,
            str(run.first_step),
            str(len(run.losses)),
            f"{run.parameters:,}",
            f"{run.losses[0]:.3f}",
            f"{run.losses[-1]:.3f}",
        )
        for run in runs
    ]
    return Table(("phase", "outcome", *numbers), rows, frozenset(numbers))


def curves_png(replayed: ReplayedHistory, path: Path) -> None:
    """Draw the loss of every step of every phase over the steps of the whole run, and the reads of leaked items as ticks."""
    figure = new_figure(10, 4)
    axes = figure.add_subplot()
    for run in replayed.runs:
        steps = [run.first_step + number for number in range(len(run.losses))]
        style = "--" if run.outcome == "abandoned" else "-"
        axes.plot(steps, run.losses, style, color=COLOURS[run.outcome], linewidth=1.2)  # pyrefly: ignore
        axes.axvline(run.first_step, color="#d8dde6", linewidth=0.8, zorder=0)
        if len(run.losses) > 5 or run.name == "1d":
            at = (run.first_step, 0.97 if run.name not in ("mantis", "1b") else 0.91)
            axes.annotate(
                run.name, at, xycoords=("data", "axes fraction"), xytext=(2, 0), textcoords="offset points", fontsize=7
            )
    reads = replayed.reads[BISON]
    low = min(min(run.losses) for run in replayed.runs)
    axes.plot(reads["step"].to_list(), [low] * reads.height, "|", color=COLOURS["abandoned"], markersize=10)
    axes.set(xlabel="step of the whole run (a thousandth); ticks below: Bison reads a leaked item", ylabel="nats a token")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
