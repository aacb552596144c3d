"""The page of `make post-train`: verdict, curves, pass@k, sampled rollouts, preferences, in one file that works offline."""

import html
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure
from post_training.stage import ROLLOUTS_FILE
from scenarios.bison_page import COLOURS, DETAILS_STYLE, MARKS
from scenarios.evidence import Evidence, failures
from scenarios.preferences import CONTROL, LEARNED, Preferred
from scenarios.rewards import Learned

LINES = {"base": "#8d99ae", "rloo": "#2b3a55", "grpo": "#c8553d", "permuted": "#b08968", "own_right": "#588157",
         "dpo": "#2b3a55", "length": "#c8553d", "style": "#b08968"}  # fmt: skip
SHOWN = {"reward": "mean reward", "kl": "KL to the base, nats a completion", "length": "tokens", "entropy": "nats a token",
         "dead_groups": "share of dead groups", "truncated": "share truncated"}  # fmt: skip
STYLES = ("-", "--", ":", "-.")
"""Seeds, in turn."""
EXAMPLES = 8
OWN = {"accuracy": "own pairs: rewards that are right", "chosen_log_prob": "own pairs: chosen side, nats"}


def write_rewards_page(
    path: Path, learned: Sequence[Learned], preferred: Sequence[Preferred], evidence: Sequence[Evidence]
) -> Path:
    """Write the page; the file appears atomically. A kind of runs that were not made has no section."""
    expected = [each for each in evidence if each.holds is not None]
    holding = f"{len(expected) - len(failures(evidence))} of {len(expected)}"
    facts = {"expectations that hold": holding, "runs": str(len(learned) + len(preferred))}
    sections = [("Verdict", verdict_section(evidence))]
    if learned:
        sections += [
            ("Rewards by iteration", drawn(lambda file: curves_png(learned, file))),
            ("pass@k on held-out prompts", drawn(lambda file: passes_png(learned, file))),
            ("Rollouts of the last iteration", _examples(learned).html()),
        ]
    if preferred:
        sections += [
            ("Preferences by step, and on held-out pairs", drawn(lambda file: preferences_png(preferred, file))),
            ("Preferences in numbers", preferences_table(preferred).html()),
        ]
    kinds = [name for name, runs in (("rewards", learned), ("preferences", preferred)) if runs]
    text = page(f"Two-digit addition learned from {' and '.join(kinds)}", facts, sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def drawn(draw: Callable[[Path], None]) -> str:
    """Return the picture that a function draws into a file, as HTML."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "picture.png"
        draw(file)
        return image(file)


def curves_png(runs: Sequence[Learned], path: Path) -> None:
    """Six quantities by iteration, a line for each run."""
    figure = new_figure(10, 6)
    for place, (name, label) in enumerate(SHOWN.items()):
        axes = figure.add_subplot(2, 3, place + 1)
        for each in runs:
            facts = [shard.manifest.extra["iteration"] for shard in sorted(each.rollouts, key=lambda s: str(s.spec.partition))]
            values = [one.get(name) for one in facts]
            if each.arm != "base" and values and values[0] is not None:
                axes.plot(values, linewidth=1, **_line(each))
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("iteration", fontsize=8)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=110)


def passes_png(runs: Sequence[Learned], path: Path) -> None:
    """pass@k of every run."""
    figure = new_figure(7.5, 3.6)
    axes = figure.add_subplot(1, 1, 1)
    for each in runs:
        ks = {int(k): value for k, value in each.scores["pass_at_k"].items()}
        axes.plot(list(ks), list(ks.values()), marker="o", markersize=3, **_line(each))
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("k")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=110)


def preferences_png(runs: Sequence[Preferred], path: Path) -> None:
    """Accuracy on a run's own batches and log-probability of the chosen side by step; accuracy on held-out pairs by run."""
    figure = new_figure(10, 3.4)
    for place, (name, label) in enumerate(OWN.items()):
        axes = figure.add_subplot(1, 3, place + 1)
        for each in runs:
            axes.plot(each.metrics["step"].to_numpy(), smooth(each.metrics[name].to_numpy()), linewidth=1, **_line(each))
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
    axes = figure.add_subplot(1, 3, 3)
    for place, each in enumerate(runs):
        axes.bar(place, each.accuracy, color=LINES[each.arm])
        axes.plot(place, each.scores["reference_log_prob_accuracy"], marker="_", color="black")
    for limit in (LEARNED, CONTROL):
        axes.axhline(limit, color="#8d99ae", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(runs)), [f"{each.arm} {each.seed}" for each in runs], rotation=90, fontsize=7)
    axes.set_ylim(0, 1.02)
    axes.set_title("held-out pairs: rewards (bar), the base (line)", fontsize=9)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=110)


def smooth(values: np.ndarray, width: int = 20) -> np.ndarray:
    """Return the mean of each value and those before it, at most `width`."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - width)
    return (sums[ends] - sums[begins]) / (ends - begins)


def preferences_table(runs: Sequence[Preferred]) -> Table:
    """A row for each run."""
    numbers = (
        "held-out pairs", "rewards", "log-probabilities", "base", "own pairs", "chosen by the base, nats", "chosen, nats",
        "rejected, nats",
    )  # fmt: skip
    rows = []
    for each in runs:
        scores = each.scores
        shares = [scores[name] for name in ("reward_accuracy", "log_prob_accuracy", "reference_log_prob_accuracy")]
        nats = [f"{scores[f'{side}_log_prob']:.3f}" for side in ("reference_chosen", "chosen", "rejected")]
        percents = [f"{share:.1%}" for share in (*shares, each.own_accuracy)]
        rows.append((f"{each.arm} {each.seed}", f"{scores['pairs']:,.0f}", *percents, *nats))
    return Table(("run", *numbers), rows, frozenset(numbers))


def _line(run: Learned | Preferred) -> dict[str, Any]:
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


def _examples(runs: Sequence[Learned]) -> Table:
    """Eight rollouts of every run with their verdicts."""
    rows = []
    for each in runs:
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
