"""The weights of a trained scorer as JSON: those that are not zero, in the order of buckets, read back to the same bits."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

FORMAT = "hashed-logistic/1"
WEIGHTS_FILE = "weights.json"


def write_weights(path: Path, weights: np.ndarray) -> None:
    """`weights` float32 [buckets]: `{"format", "size", "buckets": [...], "weights": [...]}`.

    A number has the fewest digits that give the same float32 again: 3.3 MB for 165,000 weights, which load in .04 s.
    """
    buckets = np.flatnonzero(weights)
    kept = weights[buckets]
    short = np.array([float(str(weight)) for weight in kept])
    numbers = np.where(short.astype(np.float32) == kept, short, kept.astype(np.float64))
    record = {"format": FORMAT, "size": weights.size, "buckets": buckets.tolist(), "weights": numbers.tolist()}
    path.write_text(json.dumps(record) + "\n")


@lru_cache(maxsize=1)
def read_weights(path: Path) -> np.ndarray:
    """float32 [buckets], kept by the process: every shard of a source wants it. Raises: ValueError for another format."""
    record = json.loads(path.read_text())
    if record["format"] != FORMAT:
        raise ValueError(f"{path} has weights of format {record['format']!r}; this code reads {FORMAT!r}: train it anew")
    weights = np.zeros(record["size"], np.float32)
    weights[record["buckets"]] = np.array(record["weights"], np.float32)
    weights.flags.writeable = False
    return weights
