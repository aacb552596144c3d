"""Shuffles on a Ray cluster, as plain tasks: Ray places them, moves and spills their tables, and repeats what is lost.

A task that reads returns one object for each range; a task that reduces takes one object of each reader. If a worker
process dies, its task runs again; if a machine dies, Ray runs again the tasks whose objects were there (lineage
reconstruction). Tasks are pure functions, so what they return again is the same.

What a task reads from storage must be readable on every machine under the same path: a shared file system, or a mounted
bucket (`deploy/ray`). Ray is optional (`pip install` of the group `ray`), so it is imported by name.
"""

import importlib
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, split, table_digest

UNLIMITED = -1
"""Tries of a task whose worker dies. A task that raises is not tried again: it would raise again."""


@dataclass
class RayEngine:
    """Runs each task and each range as a task of the cluster at `address`."""

    address: str
    """`ray://HOST:10001` of a head; for a process on a machine of the cluster also its `HOST:6379`, or `auto`."""

    moved: list[Moved] = field(default_factory=list)

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Return the ranges as objects of the cluster. Raises: ray.exceptions.RayError naming the task that failed."""
        ray = self._connected()
        readers = ray.remote(num_returns=step.ranges + 1, max_retries=UNLIMITED)(read_rows)
        reducers = ray.remote(num_returns=2, max_retries=UNLIMITED)(reduce_rows)
        read = readers.options(name=f"{step.name}-rows")
        given = ray.put(replace(step, tasks=((),)))
        rows = [read.remote(given, *(a.held if isinstance(a, Part) else a for a in task)) for task in step.tasks]
        reduce = reducers.options(name=f"{step.name}-range")
        reduced = [reduce.remote(step.reduce, *(row[i] for row in rows)) for i in range(step.ranges)]
        shuffled = sum(ray.get([row[-1] for row in rows]))
        parts = tuple(Part(**ray.get(facts), held=table) for table, facts in reduced)
        self.moved.append(Moved(step.name, shuffled, sum(part.bytes for part in parts)))
        return parts

    def table(self, part: Part) -> pa.Table:
        """Fetch one part from the cluster."""
        return self._connected().get(part.held)

    def _connected(self) -> Any:
        ray = importlib.import_module("ray")
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        return ray


def read_rows(step: Shuffle, *arguments: object) -> list[object]:
    """One task: return the rows of every range, and their bytes."""
    tables = [table.combine_chunks() for table in split(step, arguments)]
    return [*tables, sum(table.nbytes for table in tables)]


def reduce_rows(reduce: Any, *tables: pa.Table) -> tuple[pa.Table, dict[str, object]]:
    """One task: return the reduced rows of a range, and what a `Part` says of them."""
    table = reduce(pa.concat_tables(tables)).combine_chunks()
    return table, {"rows": table.num_rows, "bytes": table.nbytes, "digest": table_digest(table)}
