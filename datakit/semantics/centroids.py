"""Centroids of the vectors of a scope by spherical k-means on a sample, and the clusters that documents fall into.

The sample is the documents of a range of ids, which are hashes: it does not depend on how many parts or workers there
are. The first centroids are documents at equal distances in the sample. Centroids are stored as int8 like documents, so
that the nearest one is found exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datakit.dedup.part_files import save_part
from datakit.dedup.scope_parts import ScopePart
from datakit.semantics.embeddings import quantized
from datakit.semantics.vectors import Scope, Vectors, lengths
from datakit.text.arrays import load, save
from lineage.shards.run import SCRATCH_FOLDER

BLOCK_ROWS = 1_024
BINS = 256
"""Runs of the cosine with the centroid, by which a giant cluster is cut."""


@dataclass(frozen=True)
class Clustering:
    """How many clusters, from documents of the range `low` to `high` of all ids (0 to 1), in how many rounds of k-means.

    Files of different numbers are different clusterings of one scope.
    """

    number: int
    clusters: int
    low: float
    high: float
    iterations: int

    def file(self, name: str) -> str:
        return f"{name}{self.number}"

    @property
    def centroids(self) -> str:
        """Their file, below the scratch folder."""
        return f"{self.file('centroids')}.npy"


def sample_part(folder: Path, scope: Scope, part: ScopePart, by: Clustering) -> dict[str, int]:
    """Write the sample of one part: `keys` uint64 [n], the first halves of its ids, and `sampled` int8 [n, width]."""
    bounds = [np.uint64(min(int(share * 2.0**64), (1 << 64) - 1)) for share in (by.low, by.high)]
    halves, rows = scope.load("ids", part)[:, 0], scope.load("rows", part)
    start, stop = (int(np.searchsorted(rows, np.searchsorted(halves, bound, side="right"))) for bound in bounds)
    taken = slice(start if by.low else 0, stop)
    arrays = {by.file("keys"): halves[rows[taken]], by.file("sampled"): scope.load("vectors", part)[taken]}
    save_part(folder, part, **arrays)
    return {"sampled": len(arrays[by.file("keys")])}


def make_centroids(folder: Path, scope: Scope, by: Clustering) -> dict[str, int]:
    """One shard: write the centroids of the samples of all parts, in the order of ids."""
    keys, vectors = (np.concatenate([scope.load(by.file(name), part) for part in scope.parts]) for name in ("keys", "sampled"))
    sample = vectors[np.argsort(keys, kind="stable")]
    save(folder / SCRATCH_FOLDER / by.centroids, centroids(sample, by.clusters, by.iterations))
    return {"sampled": len(sample)}


def centroids(sample: Vectors, count: int, iterations: int) -> Vectors:
    """Return int8 [at most count, width] by Lloyd's rounds; a cluster that loses all its documents keeps its centroid."""
    unit = (sample / np.maximum(lengths(sample), 1)[:, None]).astype(np.float32)
    count = min(count, len(unit))
    centres = unit[np.arange(count) * len(unit) // max(1, count)]
    for _ in range(iterations if count > 1 else 0):
        nearest = np.concatenate([(block @ centres.T).argmax(axis=1) for _, block in _blocks(unit)])
        order = np.argsort(nearest, kind="stable")
        found, starts = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(unit[order], starts, axis=0)
        centres[found] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(1e-12))
    return quantized(centres)


def nearest_centroids(vectors: Vectors, centres: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 [vectors], the nearest centroid of each vector, and float64 [vectors], their cosine."""
    nearest, best = np.zeros(len(vectors), np.int64), np.zeros(len(vectors))
    wide, inverse = centres.astype(np.float32).T, 1 / np.maximum(lengths(centres), 1)
    for start, block in _blocks(vectors):
        scores = (block.astype(np.float32) @ wide).astype(np.float64) * inverse
        stop = start + len(block)
        nearest[start:stop] = scores.argmax(axis=1)
        best[start:stop] = scores.max(axis=1) / np.maximum(lengths(block), 1)
    return nearest, best


def assign_part(folder: Path, scope: Scope, part: ScopePart, by: Clustering) -> dict[str, int]:
    """Write the clusters of one part's documents: `bins` int64 [n] (cluster and bin), `counts` int64 [different bins, 2]."""
    nearest, cosine = nearest_centroids(scope.load("vectors", part), load(scope.folder / by.centroids))
    bins = nearest * BINS + np.clip(cosine * BINS, 0, BINS - 1).astype(np.int64)
    counts = np.stack(np.unique(bins, return_counts=True), axis=1)
    save_part(folder, part, **{by.file("bins"): bins, by.file("counts"): counts})
    return {"documents": len(nearest)}


def _blocks(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(rows), BLOCK_ROWS):
        yield start, rows[start : start + BLOCK_ROWS]
