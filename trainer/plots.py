"""Plots of a run's saved metrics."""

from pathlib import Path

import polars as pl

from lineage.figures import new_figure


def loss_curve_png(metrics: pl.DataFrame, path: Path, unigram_entropy: float | None, title: str = "training loss") -> None:
    """Draw loss in nats per token over steps, its running mean, and the unigram entropy if known, which a model must beat."""
    figure = new_figure(7, 3.4)
    axes = figure.add_subplot()
    steps, loss = metrics["step"].to_numpy(), metrics["loss_nats"]
    axes.plot(steps, loss.to_numpy(), color="#9db0cf", linewidth=0.8, label="each step")
    smooth = loss.rolling_mean(window_size=min(20, max(1, loss.len())), min_samples=1)
    axes.plot(steps, smooth.to_numpy(), color="#2b3a55", linewidth=1.6, label="mean of 20 steps")
    if unigram_entropy is not None:
        axes.axhline(
            unigram_entropy, color="#d1495b", linewidth=1, linestyle="--", label=f"unigram entropy {unigram_entropy:.2f}"
        )
    axes.set(
        xlabel="step", ylabel="loss (nats a token)", title=f"{title}: {float(smooth[-1]):.3f} nats after {int(steps[-1])} steps"
    )
    axes.legend(frameon=False, fontsize=8)
    axes.grid(axis="y", color="#eceff4")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)
