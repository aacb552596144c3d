"""`python -m trainer.picture CHECKPOINT PNG`: the loss curve of a checkpoint, by the folder that holds it."""

import json
import sys
from pathlib import Path

import polars as pl

from trainer.plots import loss_curve_png


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise SystemExit("usage: python -m trainer.picture CHECKPOINT PNG, the first a checkpoint's folder with its metrics")
    folder, path = map(Path, arguments)
    metrics, spec = folder / "metrics.parquet", folder / "spec.json"
    if not metrics.exists():
        raise SystemExit(f"{folder} holds no metrics.parquet: it is no checkpoint that was trained here")
    loss_curve_png(pl.read_parquet(metrics), path, unigram_entropy=None, title=f"run {json.loads(spec.read_text())['name']}")


if __name__ == "__main__":
    main(sys.argv[1:])
