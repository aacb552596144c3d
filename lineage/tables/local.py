"""Shuffles on this machine: shards that survive a kill, rows in Arrow files below the writer's scratch.

Every task writes one file with a record batch for each range. Every range maps its batch of each file. So a shuffle
opens tasks times ranges files, each by its own offset. One task with one range writes no rows. In two levels a batch of a
task's file is a group of ranges. A shard for each group and run of tasks maps the batches of these files, and writes a file
with a record batch for each range of the group.

Maps are lazy: a task fetches the files that its arguments name, each as a whole. So where runners make ranges in one level,
every runner fetches the rows of all tasks, up to 1.4 GiB. In two levels neighbouring shards go to one runner, first those of
one run, then those of one group. So each runner fetches its share of the rows in each level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, joined, runs_of, saved, split, table_digest


@dataclass
class LocalEngine:
    """Runs each task and each range as a shard of the artifact that is being written."""

    scratch: str
    """Folder below the writer's that is not published (`lineage.writing.working_folder.SCRATCH_FOLDER`)."""

    workers: int | None = None
    """None: those of the writer's execution."""

    moved: list[Moved] = field(default_factory=list)

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Return the ranges as files. Raises: IncompleteError naming shards that fail."""
        rows, reduced = (Path(self.scratch, "shuffles", step.name, kind) for kind in ("rows", "ranges"))
        if len(step.tasks) == step.ranges == 1:
            return self._in_one(out, step, reduced)
        only, edges = replace(step, tasks=((),)), step.edges
        tasks = [f"{step.name}-rows-{i:06d}" for i in range(len(step.tasks))]
        split_only = replace(only, reduce=joined)  # a task needs no file that the reduction reads
        shards = {name: (split_only, rows, name, arguments, edges) for name, arguments in zip(tasks, step.tasks, strict=True)}
        spilled = out.map_shards(write_rows, shards, self.workers, lazy=True)
        paths = [out.folder / rows / f"{name}.arrow" for name in tasks]
        batches, in_groups = [(paths, i) for i in range(step.ranges)], len(edges) <= step.ranges
        if in_groups:
            batches = self._from_groups(out, split_only, rows, paths, edges)
        names = [f"{step.name}-range-{i:06d}" for i in range(step.ranges)]
        shards = {name: (only, reduced, name, *batch) for name, batch in zip(names, batches, strict=True)}
        done = out.map_shards(reduce_range, shards, self.workers, lazy=True, in_runs=in_groups)
        parts = tuple(Part(**done[name], held=out.folder / reduced / f"{name}.arrow") for name in names)
        shuffled = sum(int(shard["bytes"]) for shard in spilled.values())
        self.moved.append(Moved(step.name, shuffled, sum(part.bytes for part in parts)))
        return parts

    def _from_groups(
        self, out: Shards, step: Shuffle, rows: Path, paths: Sequence[Path], edges: Sequence[int]
    ) -> list[tuple[list[Path], int]]:
        """Split groups of ranges, a shard for each group and run of tasks; return files and batch of every range."""
        runs = runs_of(paths, len(edges) - 1)
        shards, batches = dict[str, tuple[object, ...]](), list[tuple[list[Path], int]]()
        for group, (start, stop) in enumerate(pairwise(edges)):
            names = [f"{step.name}-rows-{run:06d}-{group:06d}" for run in range(len(runs))]
            of_group = (group, range(start, stop + 1))
            shards |= {name: (step, rows, name, run, *of_group) for name, run in zip(names, runs, strict=True)}
            written = [out.folder / rows / f"{name}.arrow" for name in names]
            batches += [(written, i) for i in range(stop - start)]
        out.map_shards(write_ranges, shards, self.workers, lazy=True, in_runs=True)
        return batches

    def _in_one(self, out: Shards, step: Shuffle, reduced: Path) -> tuple[Part, ...]:
        """Run a small shuffle as one shard: its rows need no file."""
        name, only = f"{step.name}-whole", replace(step, tasks=((),))
        shards = {name: (only, reduced, name, step.tasks[0])}
        done = dict(out.map_shards(read_and_reduce, shards, self.workers, lazy=True)[name])
        self.moved.append(Moved(step.name, int(done.pop("shuffled")), int(done["bytes"])))
        return (Part(**done, held=out.folder / reduced / f"{name}.arrow"),)

    def table(self, out: Shards, part: Part) -> pa.Table:
        """Map the file of one part."""
        out.bring(part.held)
        return _mapped([part.held], 0)


def write_rows(
    folder: Path, step: Shuffle, rows: Path, name: str, arguments: Sequence[object], edges: Sequence[int]
) -> dict[str, object]:
    """One shard: write the rows of a task, a record batch for each group of ranges (`split`)."""
    return {"bytes": saved(folder / rows / f"{name}.arrow", split(step, step.read(*_given(arguments)), edges))}


def write_ranges(
    folder: Path, step: Shuffle, rows: Path, name: str, paths: Sequence[Path], index: int, edges: Sequence[int]
) -> dict[str, object]:
    """One shard: write the rows that some tasks have in a group, a record batch for each of its ranges."""
    return {"bytes": saved(folder / rows / f"{name}.arrow", split(step, _mapped(paths, index), edges))}


def read_and_reduce(folder: Path, step: Shuffle, reduced: Path, name: str, arguments: Sequence[object]) -> dict[str, object]:
    """One shard: read the only task and reduce the only range."""
    rows = step.read(*_given(arguments))
    return {"shuffled": rows.nbytes, **_saved(folder / reduced / f"{name}.arrow", step.reduce(rows))}


def reduce_range(folder: Path, step: Shuffle, reduced: Path, name: str, paths: Sequence[Path], index: int) -> dict[str, object]:
    """One shard: reduce the rows that all tasks have in a range."""
    return _saved(folder / reduced / f"{name}.arrow", step.reduce(_mapped(paths, index)))


def _given(arguments: Sequence[object]) -> list[object]:
    return [_mapped([a.held], 0) if isinstance(a, Part) else a for a in arguments]


def _saved(path: Path, table: pa.Table) -> dict[str, object]:
    size = saved(path, [table])
    return {"rows": table.num_rows, "bytes": size, "digest": table_digest(table)}


def _mapped(paths: Sequence[Path], index: int) -> pa.Table:
    return pa.Table.from_batches([_batch(path, index) for path in paths])


def _batch(path: Path, index: int) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(index)
