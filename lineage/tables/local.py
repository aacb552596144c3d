"""Shuffles on this machine: shards that survive a kill, rows in Arrow files below the writer's scratch.

Every task writes one file with a record batch for each range. Every range maps its batch of each file. So a shuffle
opens tasks times ranges files, each by its own offset. One task with one range writes no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, saved, split, table_digest


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
        tasks = [f"{step.name}-rows-{i:06d}" for i in range(len(step.tasks))]
        only = replace(step, tasks=((),))
        shards = {name: (only, rows, name, arguments) for name, arguments in zip(tasks, step.tasks, strict=True)}
        spilled = out.map_shards(write_rows, shards, self.workers)
        paths = [out.folder / rows / f"{name}.arrow" for name in tasks]
        names = [f"{step.name}-range-{i:06d}" for i in range(step.ranges)]
        shards = {name: (only, reduced, name, paths, i) for i, name in enumerate(names)}
        done = out.map_shards(reduce_range, shards, self.workers)
        parts = tuple(Part(**done[name], held=out.folder / reduced / f"{name}.arrow") for name in names)
        shuffled = sum(int(shard["bytes"]) for shard in spilled.values())
        self.moved.append(Moved(step.name, shuffled, sum(part.bytes for part in parts)))
        return parts

    def _in_one(self, out: Shards, step: Shuffle, reduced: Path) -> tuple[Part, ...]:
        """Run a small shuffle as one shard: its rows need no file."""
        name, only = f"{step.name}-whole", replace(step, tasks=((),))
        shards = {name: (only, reduced, name, step.tasks[0])}
        done = dict(out.map_shards(read_and_reduce, shards, self.workers)[name])
        self.moved.append(Moved(step.name, int(done.pop("shuffled")), int(done["bytes"])))
        return (Part(**done, held=out.folder / reduced / f"{name}.arrow"),)

    def table(self, part: Part) -> pa.Table:
        """Map the file of one part."""
        return pa.Table.from_batches([_batch(part.held, 0)])


def write_rows(folder: Path, step: Shuffle, rows: Path, name: str, arguments: Sequence[object]) -> dict[str, object]:
    """One shard: write the rows of a task, a record batch for each range."""
    return {"bytes": saved(folder / rows / f"{name}.arrow", split(step, _given(arguments)))}


def read_and_reduce(folder: Path, step: Shuffle, reduced: Path, name: str, arguments: Sequence[object]) -> dict[str, object]:
    """One shard: read the only task and reduce the only range."""
    (rows,) = split(step, _given(arguments))
    return {"shuffled": rows.nbytes, **_saved(folder / reduced / f"{name}.arrow", step.reduce(rows))}


def reduce_range(folder: Path, step: Shuffle, reduced: Path, name: str, paths: Sequence[Path], index: int) -> dict[str, object]:
    """One shard: reduce the rows that all tasks have in a range."""
    table = step.reduce(pa.Table.from_batches([_batch(path, index) for path in paths]))
    return _saved(folder / reduced / f"{name}.arrow", table)


def _given(arguments: Sequence[object]) -> list[object]:
    return [pa.Table.from_batches([_batch(a.held, 0)]) if isinstance(a, Part) else a for a in arguments]


def _saved(path: Path, table: pa.Table) -> dict[str, object]:
    size = saved(path, [table])
    return {"rows": table.num_rows, "bytes": size, "digest": table_digest(table)}


def _batch(path: Path, index: int) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(index)
