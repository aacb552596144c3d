"""The page of `make moe` and `make moe-study`: curves, loads, balance and verdict in one file that works offline."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure
from scenarios.bison_page import COLOURS, DETAILS_STYLE, MARKS
from scenarios.evidence import Evidence, failures
from scenarios.experts import Outcome
from trainer.plots import load_map_png

LINES = {"dense": "#2b3a55", "moe": "#c8553d", "wide": "#588157"}
SMOOTH = 20


def write_experts_page(path: Path, title: str, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> Path:
    """Write the page; the file appears atomically."""
    expected = [each for each in evidence if each.holds is not None]
    facts = {
        "expectations that hold": f"{len(expected) - len(failures(evidence))} of {len(expected)}",
        "runs": str(len(outcomes)),
    }
    with tempfile.TemporaryDirectory() as folder:
        text = page(title, facts, _sections(Path(folder), outcomes, evidence))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def _sections(folder: Path, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> list[tuple[str, str]]:
    losses, loads, unevenness = (folder / f"{name}.png" for name in ("losses", "loads", "unevenness"))
    losses_png(outcomes, losses)
    sections = [
        ("Verdict", _verdict(evidence)),
        ("Runs", _table(outcomes).html()),
        ("Training loss", image(losses)),
    ]
    routed = [each for each in outcomes if each.router is not None]
    if routed:
        assert routed[0].router is not None
        load_map_png(routed[0].router, loads, routed[0].run.name)
        unevenness_png(routed, unevenness)
        sections += [("Load of every expert over time", image(loads)), ("Balance", image(unevenness) + _balance(routed).html())]
    return sections


def _verdict(evidence: Sequence[Evidence]) -> str:
    parts = []
    for each in evidence:
        mark = f'<b style="color:{COLOURS[each.holds]}">{MARKS[each.holds]}</b>'
        details = f'<div style="{DETAILS_STYLE}">{html.escape(each.details)}</div>' if each.details else ""
        parts.append(f"<div>{mark} {html.escape(each.claim)}</div>{details}")
    return "".join(parts)


def _table(outcomes: Sequence[Outcome]) -> Table:
    numbers = ("seed", "parameters", "a token meets", "FLOPs", "training loss, nats", "held-out bits per byte")
    rows = []
    for each in outcomes:
        model = each.run.spec.model
        tail = each.metrics["loss_nats"].tail(SMOOTH).to_numpy() if each.metrics.height else []
        rows.append(
            (
                each.run.name,
                str(each.seed),
                f"{model.num_parameters:,}",
                f"{model.active_parameters:,}",
                f"{each.flops:.4g}",
                f"{sum(tail) / len(tail):.4f}" if len(tail) else "",
                "diverged" if each.bpb is None else f"{each.bpb:.4f}",
            )
        )
    return Table(("run", *numbers), rows, frozenset(numbers))


def _balance(routed: Sequence[Outcome]) -> Table:
    numbers = ("layer", "busiest / mean", "idlest / mean", "entropy", "dead experts", "dropped share", "norm of the bias")
    rows = []
    for each in routed:
        assert each.router is not None
        for layer in each.balance:
            last = each.router.filter(each.router["layer"] == layer.layer).sort("step").row(-1, named=True)
            shown = [f"{value:.3f}" for value in (layer.max_over_mean, layer.least_over_mean, last["load_entropy"])]
            rest = [str(last["dead_experts"]), f"{last['dropped_share']:.3f}", f"{last['bias_norm']:.3f}"]
            rows.append((each.run.name, str(layer.layer), *shown, *rest))
    return Table(("run", *numbers), rows, frozenset(numbers))


def losses_png(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw the running mean of every run's training loss, a colour for each arm."""
    figure = new_figure(8, 4)
    axes = figure.add_subplot()
    shown: set[str] = set()
    for each in outcomes:
        if each.metrics.height:
            smooth = each.metrics["loss_nats"].rolling_mean(window_size=SMOOTH, min_samples=1)
            label = None if each.arm in shown else each.arm
            axes.plot(each.metrics["step"].to_numpy(), smooth.to_numpy(), color=LINES[each.arm], linewidth=0.9, label=label)
            shown.add(each.arm)
    axes.set(xlabel="step", ylabel=f"nats a token, mean of {SMOOTH} steps")
    axes.legend(frameon=False)
    axes.grid(axis="y", color="#eceff4")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)


def unevenness_png(routed: Sequence[Outcome], path: Path) -> None:
    """Draw the busiest expert's load over the mean, by step: each layer of each run."""
    figure = new_figure(8, 3)
    axes = figure.add_subplot()
    for each in routed:
        assert each.router is not None
        for (_layer,), rows in each.router.sort("step").group_by("layer", maintain_order=True):
            axes.plot(rows["step"].to_numpy(), rows["load_max_over_mean"].to_numpy(), linewidth=0.7, color="#c8553d", alpha=0.5)
    axes.axhline(1.2, color="#2f6f4f", linewidth=1, linestyle="--")
    axes.set(xlabel="step", ylabel="busiest / mean, of one step", ylim=(1, None))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)
