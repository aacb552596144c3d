"""The shuffles of `datakit.containment` at any size, as `datakit.costs.joins` has those of deduplication.

The stage is off by default (`CorpusConfig.drop_contained`), so its rates are measured apart (`python -m
benchmarks.plan_containment`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from datakit.costs.joins import Join, component_joins, in_place, numbered_joins
from datakit.costs.rates import Rate, fit
from datakit.dedup.containment_candidates import PAIR_BYTES, SAMPLE_BYTES
from datakit.dedup.containment_pairs import CONTAINED
from lineage.tables.components import EDGE_BYTES
from lineage.tables.shuffle import Moved, range_count, task_count

CANDIDATE_BYTES, NUMBER_BYTES, REMOVED_BYTES = 16, 8, 24
"""Rows of `candidates_of_range`, of `containers-by-number` and of `removed_of_range`."""
ROOTED_BYTES = 8 + CONTAINED.itemsize
"""A row of `rooted_rows`."""


@dataclass(frozen=True)
class Contained:
    """What containment meets in a scope. All counts grow with the text."""

    samples: int
    pairs: int
    """Pairs that share a sample, once for each range of samples that has one."""

    candidates: int
    compared: int
    """Bytes of the shingles that are compared: of a container once, of a contained document for each of its pairs."""

    verified: int
    links: int
    """Edges that the ranges of verified pairs give back."""

    stars: int
    """Edges of the components."""

    removed: int

    @staticmethod
    def of(moved: Mapping[str, Moved], compared: int) -> "Contained":
        """Return the counts of a run, from the bytes of its shuffles by name and those that it compared."""
        sampled, verified = moved["samples"], moved["contained-links"].shuffled // EDGE_BYTES
        return Contained(
            samples=sampled.shuffled // SAMPLE_BYTES,
            pairs=sampled.written // PAIR_BYTES - range_count(sampled.shuffled),
            candidates=moved["contained-pairs"].written // CANDIDATE_BYTES,
            compared=compared,
            verified=verified,
            links=moved["contained-links"].written // EDGE_BYTES,
            stars=moved["contained-roots"].shuffled // ROOTED_BYTES - verified,
            removed=moved["contained-removed"].written // REMOVED_BYTES,
        )

    def times(self, factor: float) -> "Contained":
        """Return the counts for `factor` times the text, if its documents lie inside each other as often."""
        return Contained(**{name: round(count * factor) for name, count in vars(self).items()})


@dataclass(frozen=True)
class ContainmentRun:
    """One measured run of the stage. `bytes`: of all texts, repeated ones included."""

    bytes: int
    cpu_seconds: float
    load: float
    counts: Contained


@dataclass(frozen=True)
class ContainmentRates:
    """Measured runs of several sizes."""

    command: str
    commit: str
    day: str
    runs: tuple[ContainmentRun, ...]

    @staticmethod
    def read(path: Path) -> "ContainmentRates":
        """Read a file of measurements. Raises: ValueError naming the file and the command that writes it."""
        if not path.is_file():
            raise ValueError(
                f"there are no measurements in {path}; `python -m benchmarks.plan_containment --out {path}` writes them"
            )
        fields = json.loads(path.read_text())
        runs = [ContainmentRun(**(run | {"counts": Contained(**run["counts"])})) for run in fields.pop("runs")]
        return ContainmentRates(**fields, runs=tuple(runs))

    def rate(self) -> Rate:
        """Return the fitted CPU seconds."""
        return fit([run.bytes for run in self.runs], [run.cpu_seconds for run in self.runs])

    def at(self, size: float) -> Contained:
        """Return the counts of so many bytes of text, from the largest run."""
        largest = max(self.runs, key=lambda run: run.bytes)
        return largest.counts.times(size / largest.bytes)


def containment_joins(found: Contained, documents: int, parts: int) -> Iterator[Join]:
    """Yield the shuffles of `datakit.containment` in their order."""
    size = found.samples * SAMPLE_BYTES
    samples = Join("samples", size, task_count(parts, size), range_count(size))
    pair_bytes = (found.pairs + samples.ranges) * PAIR_BYTES  # the first row of each range counts its full samples
    pairs = Join("contained-pairs", pair_bytes, task_count(samples.ranges, pair_bytes), range_count(pair_bytes))
    yield from (samples, pairs)
    size, row = found.candidates * CANDIDATE_BYTES, found.candidates * NUMBER_BYTES
    yield from numbered_joins("candidates", size, pairs.ranges, documents, size)
    yield from numbered_joins("containers", size, pairs.ranges, documents, row)
    verified = in_place("contained-verified", found.compared, parts)
    yield verified
    size = found.verified * CONTAINED.itemsize
    tasks, ranges = task_count(verified.ranges, size), range_count(size)
    links = Join("contained-links", found.verified * EDGE_BYTES, tasks, ranges)
    graph = list(component_joins("contained", found.links, links.ranges))
    of_stars = graph[-1].ranges if graph else links.ranges
    star_tasks = task_count(of_stars, found.stars * EDGE_BYTES)
    roots = Join("contained-roots", (found.verified + found.stars) * ROOTED_BYTES, tasks + star_tasks, ranges)
    rooted = found.verified * ROOTED_BYTES
    removed = Join("contained-removed", rooted, task_count(ranges, rooted), ranges)
    yield from (links, *graph, roots, removed)
    size = found.removed * REMOVED_BYTES
    yield from numbered_joins("removed", size, removed.ranges, documents, size)
