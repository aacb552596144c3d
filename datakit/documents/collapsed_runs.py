"""Merge many sorted runs into few, whose files have ranges of the ids, so that a part of the output reads few bytes of them.

A group of runs is merged into one, and the last merge cuts it into files: each has the ids of some neighbouring parts. So where
runners merge, each fetches the runs of its own groups, and then the files of its own parts.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from datakit.documents.drop_samples import DropSamples
from datakit.documents.parts import as_frame
from datakit.documents.schemas import ID
from datakit.documents.sorted_runs import Cut, IdRange, merged, write_blocks, writing_run
from lineage.shards.run import SCRATCH_FOLDER
from lineage.writing.writer import Writer

RUNS = f"{SCRATCH_FOLDER}/runs"
SAMPLES = f"{SCRATCH_FOLDER}/samples"
PARTS_OF_FILE = 8

type Runs = Sequence[tuple[IdRange, Sequence[Path]]]
"""Ranges that cover all ids, and for each the files that have its ids."""


def collapse(out: Writer, runs: list[Path], cut: Cut, parts: Sequence[IdRange]) -> tuple[Runs, list[Mapping[str, Any]]]:
    """Return at most `fan_in` runs, merged if there are more, and the statistics of the shards that merged them."""
    every = [IdRange()]
    statistics, level, held = list[Mapping[str, Any]](), 0, [(every[0], runs)]
    while len(runs) > cut.fan_in:
        groups = [runs[i : i + cut.fan_in] for i in range(0, len(runs), cut.fan_in)]
        names = [f"collapsed-{level}-{i:05d}" for i in range(len(groups))]
        ranges = _of_files(parts) if len(groups) <= cut.fan_in else every
        tasks = {name: (name, group, cut, ranges) for name, group in zip(names, groups, strict=True)}
        statistics += out.map_shards(collapse_runs, tasks, lazy=True, in_runs=out.fetches_inputs).values()
        held = [(ids, [out.folder / _run_file(name, i) for name in names]) for i, ids in enumerate(ranges)]
        runs, level = held[0][1], level + 1
    return held, statistics


def runs_with(runs: Runs, part: IdRange) -> Sequence[Path]:
    """Return the files that have the ids of a part, which lies in one of the ranges."""
    return next(paths for ids, paths in runs if part.low in ids)


def collapse_runs(folder: Path, name: str, runs: Sequence[Path], cut: Cut, ranges: Sequence[IdRange]) -> dict[str, object]:
    """One shard: merge a group of runs into one, with a file for each range."""
    dropped = DropSamples()
    for repeated in merge_into_run([folder / _run_file(name, i) for i in range(len(ranges))], ranges, runs, cut):
        dropped.add_repeated(as_frame(repeated))
    dropped.write(folder / SAMPLES / f"{name}.parquet")
    return {"drops": dict(dropped.counts)}


def merge_into_run(paths: Sequence[Path], ranges: Sequence[IdRange], runs: Sequence[Path], cut: Cut) -> Iterator[pa.Table]:
    """Write several runs as one, with a file for each range of ids; yield the rows that repeat an id, one round at a time."""
    with ExitStack() as stack:
        files = [stack.enter_context(writing_run(path)) for path in paths]
        for kept, repeated in merged(runs, IdRange(), cut.held_blocks):
            ids = kept[ID].to_pylist()
            edges = [*(bisect_left(ids, each.low) for each in ranges), len(ids)]
            for file, (start, stop) in zip(files, pairwise(edges), strict=True):
                write_blocks(file, kept.slice(start, stop - start), cut.block_bytes)
            yield repeated


def _of_files(parts: Sequence[IdRange]) -> list[IdRange]:
    """Return the ranges of the files: those of some neighbouring parts together."""
    groups = [parts[i : i + PARTS_OF_FILE] for i in range(0, len(parts), PARTS_OF_FILE)]
    return [IdRange(group[0].low, group[-1].high) for group in groups]


def _run_file(name: str, index: int) -> str:
    return f"{RUNS}/{name}-{index:05d}.arrow"
