"""The page of `make post-train`: verdict, curves by iteration, pass@k, and sampled rollouts, in one file that works offline."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure
from post_training.stage import ROLLOUTS_FILE
from scenarios.bison_page import COLOURS, DETAILS_STYLE, MARKS
from scenarios.evidence import Evidence, failures
from scenarios.rewards import Learned

LINES = {"base": "#8d99ae", "rloo": "#2b3a55", "grpo": "#c8553d", "permuted": "#b08968", "own_right": "#588157"}
SHOWN = {"reward": "mean reward", "kl": "KL to the base, nats a completion", "length": "tokens", "entropy": "nats a token",
         "dead_groups": "share of dead groups", "truncated": "share truncated"}  # fmt: skip
STYLES = ("-", "--", ":", "-.")
"""Seeds, in turn."""
EXAMPLES = 8


def write_rewards_page(path: Path, found: Sequence[Learned], evidence: Sequence[Evidence]) -> Path:
    """Write the page; the file appears atomically."""
    expected = [each for each in evidence if each.holds is not None]
    facts = {"expectations that hold": f"{len(expected) - len(failures(evidence))} of {len(expected)}", "runs": str(len(found))}
    with tempfile.TemporaryDirectory() as folder:
        curves, passes = Path(folder) / "curves.png", Path(folder) / "passes.png"
        curves_png(found, curves)
        passes_png(found, passes)
        sections = [
            ("Verdict", verdict_section(evidence)),
            ("By iteration", image(curves)),
            ("pass@k on held-out prompts", image(passes)),
            ("Rollouts of the last iteration", _examples(found).html()),
        ]
        text = page("Two-digit addition learned from rewards", facts, sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def curves_png(found: Sequence[Learned], path: Path) -> None:
    """Six quantities by iteration, a line for each run."""
    figure = new_figure(10, 6)
    for place, (name, label) in enumerate(SHOWN.items()):
        axes = figure.add_subplot(2, 3, place + 1)
        for each in found:
            facts = [shard.manifest.extra["iteration"] for shard in sorted(each.rollouts, key=lambda s: str(s.spec.partition))]
            values = [one.get(name) for one in facts]
            if each.arm != "base" and values and values[0] is not None:
                axes.plot(values, linewidth=1, **_line(each))
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("iteration", fontsize=8)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=110)


def passes_png(found: Sequence[Learned], path: Path) -> None:
    """pass@k of every run."""
    figure = new_figure(7.5, 3.6)
    axes = figure.add_subplot(1, 1, 1)
    for each in found:
        ks = {int(k): value for k, value in each.scores["pass_at_k"].items()}
        axes.plot(list(ks), list(ks.values()), marker="o", markersize=3, **_line(each))
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("k")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=110)


def _line(run: Learned) -> dict[str, Any]:
    """Return the color of the arm, the dashes of the seed, and the label."""
    return {"color": LINES[run.arm], "linestyle": STYLES[run.seed % len(STYLES)], "label": f"{run.arm} {run.seed}"}


def verdict_section(evidence: Sequence[Evidence]) -> str:
    """Every claim with its mark and its numbers, as HTML."""
    parts = []
    for each in evidence:
        mark = f'<b style="color:{COLOURS[each.holds]}">{MARKS[each.holds]}</b>'
        details = f'<div style="{DETAILS_STYLE}">{html.escape(each.details)}</div>' if each.details else ""
        parts.append(f"<div>{mark} {html.escape(each.claim)}</div>{details}")
    return "".join(parts)


def _examples(found: Sequence[Learned]) -> Table:
    """Eight rollouts of every run with their verdicts."""
    rows = []
    for each in found:
        if each.arm != "base":
            last = max(each.rollouts, key=lambda shard: str(shard.spec.partition))
            table = pl.read_parquet(last.file(ROLLOUTS_FILE)).gather_every(
                len(pl.read_parquet(last.file(ROLLOUTS_FILE))) // EXAMPLES
            )
            for row in table.head(EXAMPLES).iter_rows(named=True):
                rows.append(
                    (f"{each.arm} {each.seed}", row["prompt_id"], row["text"], row["verdict"], f"{row['advantage']:+.2f}")
                )
    return Table(("run", "prompt", "completion", "verdict", "advantage"), rows)
