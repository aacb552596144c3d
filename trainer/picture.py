"""`python -m trainer.picture CHECKPOINT PNG`: draw the loss curve of the checkpoint in a folder."""

import json
import sys
from pathlib import Path

import polars as pl

from trainer.plots import loss_curve_png


def main(arguments: list[str]) -> None:
    """Draw the loss curve of a checkpoint into a PNG file."""
    if len(arguments) != 2:
        raise SystemExit("usage: python -m trainer.picture CHECKPOINT PNG, where CHECKPOINT is the folder of a checkpoint")
    folder, path = map(Path, arguments)
    metrics, spec = folder / "metrics.parquet", folder / "spec.json"
    if not metrics.exists():
        raise SystemExit(f"{folder} holds no metrics.parquet; give the folder of a checkpoint that was trained here")
    loss_curve_png(pl.read_parquet(metrics), path, unigram_entropy=None, title=f"run {json.loads(spec.read_text())['name']}")


if __name__ == "__main__":
    main(sys.argv[1:])
