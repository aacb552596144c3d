"""Which task walks which documents: a cluster is one task, a giant one is cut into pieces of near documents.

A giant cluster is cut by the cosine with its centroid, in which near documents differ little. Documents of one bin that are
too many for a piece are cut by their ids. Matches across pieces are lost, so the cut is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from datakit.dedup.numbered import Numbered
from datakit.dedup.scope_parts import ScopePart
from datakit.semantics.centroids import Clustering
from datakit.semantics.encoder import WIDTH
from datakit.semantics.vectors import Scope, Vectors
from datakit.semantics.walk import walk
from lineage.tables.ranges import sorted_by

WORDS = WIDTH // 8
COLUMNS = tuple(f"v{word:02d}" for word in range(WORDS))
"""A vector as int64 columns, which a shuffle moves."""
ROW_BYTES = 8 * (4 + WORDS)
REMOVED = ("number", "kept", "threshold", "cosine")
"""Columns of a removal: numbers of documents, the place of a threshold, and the bits of a float64."""


@dataclass(frozen=True)
class Pieces:
    """Tasks of the walk."""

    first: np.ndarray
    """int64 [clusters * BINS]: the task of a bin, or the first of its tasks."""
    shared: np.ndarray
    """int64 [clusters * BINS]: how many tasks share a bin."""
    tasks: int
    giants: int
    """Clusters that are cut, and how many documents they have."""
    cut: int

    def of(self, bins: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return int64 [n]: the task of each document, by its bin and the first half of its id."""
        within = (high >> np.uint64(32)) * self.shared[bins].astype(np.uint64) >> np.uint64(32)
        return self.first[bins] + within.astype(np.int64)


def pieces(counts: np.ndarray, largest: int) -> Pieces:
    """Return the tasks of clusters whose documents are counted by bin: `counts` int64 [clusters, BINS]."""
    first, shared = np.zeros(counts.shape, np.int64), np.ones(counts.shape, np.int64)
    task, giants, cut = 0, 0, 0
    for cluster, sizes in enumerate(counts):
        if sizes.sum() <= largest:
            first[cluster], task = task, task + 1
            continue
        giants, cut, filled = giants + 1, cut + int(sizes.sum()), 0
        for at, size in enumerate(sizes.tolist()):
            if filled and filled + size > largest:
                task, filled = task + 1, 0
            first[cluster, at] = task
            filled += size
            if size > largest:
                shared[cluster, at] = -(-size // largest)
                task, filled = task + int(shared[cluster, at]), 0
        task += filled > 0
    return Pieces(first.ravel(), shared.ravel(), task, giants, cut)


def vector_rows(scope: Scope, cut: Pieces, by: Clustering, before: Numbered | None, parts: Sequence[ScopePart]) -> pa.Table:
    """Return `task`, `number`, `high` (the first half of the id), `gone` and the vector of every document of some parts.

    `gone` has a bit for each threshold at which the document was removed before.
    """
    tables = [_rows(scope, cut, by, before, part) for part in parts]
    return pa.concat_tables(tables)


def _rows(scope: Scope, cut: Pieces, by: Clustering, before: Numbered | None, part: ScopePart) -> pa.Table:
    rows = scope.load("rows", part)
    high = scope.load("ids", part)[rows, 0]
    words = np.ascontiguousarray(scope.load("vectors", part)).view(np.int64)
    gone = np.zeros(part.rows, np.int64)
    if before is not None:
        number, _, threshold, _ = before.between(part.first, part.end).T
        np.add.at(gone, number - part.first, 1 << threshold)
    task = cut.of(scope.load(by.file("bins"), part), high)
    keys = {"task": task, "number": rows + part.first, "high": high, "gone": gone[rows]}
    return pa.table(keys | {name: np.ascontiguousarray(word) for name, word in zip(COLUMNS, words.T, strict=True)})


def walk_tasks(thresholds: Sequence[float], rows: pa.Table) -> pa.Table:
    """Return what the walks of the tasks of one range remove, in the order of ids within a task."""
    ordered = sorted_by(rows, "task", "high", "number")
    task, number, bits = (ordered[name].to_numpy() for name in ("task", "number", "gone"))
    gone = (bits[:, None] >> np.arange(len(thresholds))) & 1 > 0
    bounds = [*np.flatnonzero(np.diff(task, prepend=-1)).tolist(), task.size]
    found = [pa.table({name: np.zeros(0, np.int64) for name in REMOVED})]
    for start, stop in pairwise(bounds):
        numbers = number[start:stop]
        here = walk(_vectors(ordered.slice(start, stop - start)), thresholds, gone[start:stop])
        columns = numbers[here.row], numbers[here.kept_row], here.threshold, here.cosine.view(np.int64)
        found.append(pa.table(dict(zip(REMOVED, columns, strict=True))))
    return pa.concat_tables(found)


def _vectors(rows: pa.Table) -> Vectors:
    return np.stack([rows[name].to_numpy() for name in COLUMNS], axis=1).view(np.int8)
