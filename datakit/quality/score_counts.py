"""Count how many documents have each score, for deciles and cutoffs. It takes 16 MB for any number of documents.

Scores are rounded to `DECIMALS`, so there are a million of them and counting is exact. Documents of one score keep the
order of their ids, like the parts of a table: a rank is a score and a place among its ties.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datakit.documents.parts import as_frame, iterate_part

DECIMALS = 6
"""Scores are rounded so that no last bit of arithmetic decides on which side of a threshold a document is."""

UNITS = 10**DECIMALS
ID_AND_SCORE = ["id", "score"]


@dataclass(frozen=True)
class ScoreCounts:
    """`counts` int64 [UNITS + 1]: documents by score in units; `below`: documents with a lower score."""

    counts: np.ndarray
    below: np.ndarray

    @staticmethod
    def of(tables: Iterable[Path]) -> "ScoreCounts":
        """Count the scores of tables, a row group at a time. Raises: ValueError naming a table whose scores are not rounded."""
        counts = np.zeros(UNITS + 1, np.int64)
        for path in tables:
            for table in iterate_part(path, ["score"]):
                counts += np.bincount(in_units(table["score"].to_numpy(), path), minlength=UNITS + 1)
        return ScoreCounts(counts, np.cumsum(counts) - counts)

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def at(self, rank: int) -> int:
        """Return the score in units of the document of a rank; 0 is the lowest."""
        return int(np.searchsorted(self.below, rank, side="right")) - 1

    def sum_below(self, rank: int) -> int:
        """Return the exact sum in units of the scores of lower ranks."""
        if not rank:
            return 0
        last = self.at(rank - 1)
        return int(np.arange(last) @ self.counts[:last]) + last * (rank - int(self.below[last]))


def in_units(scores: np.ndarray, path: Path) -> np.ndarray:
    """Return int64 [documents]. Raises: ValueError naming the table if a score is not a multiple of a unit from 0 to 1."""
    units = np.rint(scores * UNITS)
    wrong = ~((units >= 0) & (units <= UNITS) & (units / UNITS == scores))
    if wrong.any():
        raise ValueError(
            f"{path}: a score is {scores[wrong][0]!r}; scores are from 0 to 1 with {DECIMALS} decimals: materialize it again"
        )
    return units.astype(np.int64)


def first_of_groups(tables: Sequence[Path], counts: ScoreCounts, bounds: Sequence[int], wanted: int) -> list[list[str]]:
    """Return the first ids of every group of ranks `[bounds[i], bounds[i + 1])`. Tables are in id order, and read as
    far as needed.
    """
    samples: list[list[str]] = [[] for _ in bounds[1:]]
    sizes = np.diff(bounds)
    for ids, groups in _grouped(tables, counts, np.array(bounds[1:])):
        for group in np.unique(groups).tolist():
            lacking = wanted - len(samples[group])
            samples[group] += [ids[row] for row in np.flatnonzero(groups == group)[:lacking].tolist()]
        if all(len(some) >= min(wanted, size) for some, size in zip(samples, sizes, strict=True)):
            break
    return samples


def _grouped(tables: Sequence[Path], counts: ScoreCounts, ends: np.ndarray) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield (ids, the group of each) by row groups. Ties of a score that is in several groups are counted as they come."""
    there = np.flatnonzero(counts.counts)
    first, last = (np.searchsorted(ends, counts.below[there] + more, side="right") for more in (0, counts.counts[there] - 1))
    parted, ties_seen = there[first != last], Counter[int]()
    for path in tables:
        for table in iterate_part(path, ID_AND_SCORE):
            units = in_units(table["score"].to_numpy(), path)
            ranks = counts.below[units]
            for score in np.intersect1d(parted, units).tolist():
                rows = np.flatnonzero(units == score)
                ranks[rows] += ties_seen[score] + np.arange(rows.size)
                ties_seen[score] += rows.size
            yield table["id"].to_pylist(), np.searchsorted(ends, ranks, side="right")


def ids_of(tables: Sequence[Path], score: float) -> Iterator[str]:
    """Yield ids of the documents of a score, in the order of the tables."""
    for path in tables:
        for table in iterate_part(path, ID_AND_SCORE):
            yield from as_frame(table).filter(score=score)["id"]
