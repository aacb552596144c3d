"""Plots of a run's saved metrics."""

from pathlib import Path

import numpy as np
import polars as pl

from lineage.figures import new_figure
from trainer.router_table import MOST_UNEVEN


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


def load_map_png(table: pl.DataFrame, path: Path, title: str = "load of experts") -> None:
    """Draw one strip a layer: experts by time, the colour the load as a share of the mean."""
    layers = sorted(table["layer"].unique().to_list())
    figure = new_figure(7, 1.0 + 1.1 * len(layers))
    every = figure.subplots(len(layers), 1, squeeze=False)[:, 0]
    steps = table["step"]
    image = None
    for layer, axes in zip(layers, every, strict=True):
        loads = np.array(table.filter(pl.col("layer") == layer).sort("step")["loads"].to_list(), np.float64).T
        shares = loads / np.maximum(loads.mean(axis=0, keepdims=True), 1e-9)
        extent = (float(steps.min()), float(steps.max()) + 1, loads.shape[0] - 0.5, -0.5)  # type: ignore[arg-type]
        look = {"aspect": "auto", "cmap": "viridis", "interpolation": "nearest"}
        image = axes.imshow(shares, vmin=0, vmax=MOST_UNEVEN, extent=extent, **look)
        axes.set(ylabel=f"layer {layer}")
    every[-1].set(xlabel="step")
    every[0].set(title=f"{title}: load of each expert as a share of the mean")
    if image is not None:
        figure.colorbar(image, ax=list(every), fraction=0.03)
    figure.savefig(path, dpi=90)
