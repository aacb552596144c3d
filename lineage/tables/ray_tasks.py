"""Shuffles on a Ray cluster, as plain tasks: Ray places them, moves and spills their tables, and repeats what is lost.

A task that reads returns one object for each range; a task that reduces takes one object of each reader. In two levels a
task that reads returns one object for each group of ranges, and further tasks split the objects of a group. If a worker
process dies, its task runs again; if a machine dies, Ray runs again the tasks whose objects were there (lineage
reconstruction). Tasks are pure functions, so what they return again is the same.

What a task reads from storage must be readable on every machine under the same path: a shared file system, or a mounted
bucket (`deploy/ray`). Ray is optional (`pip install` of the group `ray`), so it is imported by name.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, runs_of, split, table_digest

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
        edges = step.edges
        readers = ray.remote(num_returns=len(edges), max_retries=UNLIMITED)(read_rows)
        reducers = ray.remote(num_returns=2, max_retries=UNLIMITED)(reduce_rows)
        read = readers.options(name=f"{step.name}-rows")
        given = ray.put(replace(step, tasks=((),)))
        rows = [read.remote(given, edges, *(a.held if isinstance(a, Part) else a for a in task)) for task in step.tasks]
        of_groups = zip(*(row[:-1] for row in rows), strict=True)
        of_ranges = of_groups if len(edges) > step.ranges else self._from_groups(step.name, given, list(of_groups), edges)
        reduce = reducers.options(name=f"{step.name}-range")
        reduced = [reduce.remote(step.reduce, *tables) for tables in of_ranges]
        shuffled = sum(ray.get([row[-1] for row in rows]))
        parts = tuple(Part(**ray.get(facts), held=table) for table, facts in reduced)
        self.moved.append(Moved(step.name, shuffled, sum(part.bytes for part in parts)))
        return parts

    def _from_groups(self, name: str, given: Any, groups: Sequence[Sequence[Any]], edges: Sequence[int]) -> list[Sequence[Any]]:
        """Split the objects of groups of ranges, a task for each group and run of tasks; return those of every range."""
        found = list[Sequence[Any]]()
        for tables, (start, stop) in zip(groups, pairwise(edges), strict=True):
            splitters = self._connected().remote(num_returns=stop - start, max_retries=UNLIMITED)(split_rows)
            of_range = splitters.options(name=f"{name}-group")
            ranges = range(start, stop + 1)
            found += zip(*(of_range.remote(given, ranges, *run) for run in runs_of(tables, len(groups))), strict=True)
        return found

    def table(self, out: Shards, part: Part) -> pa.Table:
        """Fetch one part from the cluster."""
        del out
        return self._connected().get(part.held)

    def _connected(self) -> Any:
        ray = importlib.import_module("ray")
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        return ray


def read_rows(step: Shuffle, edges: Sequence[int], *arguments: object) -> list[object]:
    """One task: return the rows of every group of ranges (`split`), and their bytes."""
    tables = [table.combine_chunks() for table in split(step, step.read(*arguments), edges)]
    return [*tables, sum(table.nbytes for table in tables)]


def split_rows(step: Shuffle, edges: Sequence[int], *tables: pa.Table) -> list[pa.Table]:
    """One task: return the rows that some tasks have in a group of ranges, by range."""
    return [table.combine_chunks() for table in split(step, pa.concat_tables(tables), edges)]


def reduce_rows(reduce: Any, *tables: pa.Table) -> tuple[pa.Table, dict[str, object]]:
    """One task: return the reduced rows of a range, and what a `Part` says of them."""
    table = reduce(pa.concat_tables(tables)).combine_chunks()
    return table, {"rows": table.num_rows, "bytes": table.nbytes, "digest": table_digest(table)}
