"""Connected components of edges that an engine holds, in rounds of shuffles (large and small stars).

Source: Kiveris and others, Connected Components in MapReduce and Beyond, SoCC 2014. The result is a star for each
component: every member hangs on the smallest number, whatever the rounds and ranges were.
"""

from collections.abc import Sequence

import pyarrow as pa

from lineage.tables import ranges
from lineage.tables.shuffle import Part, Shards, Shuffle, TableEngine, joined, range_count, tasks_of
from lineage.tables.stars import stars

EDGE_BYTES = 16
LARGEST_GRAPH = 1 << 26
"""Edges that one task connects by itself (1 GiB, about 8 GiB while it works)."""


def components(
    out: Shards, engine: TableEngine, edges: Sequence[Part], name: str = "components", largest: int | None = None
) -> tuple[Part, ...]:
    """Return the stars of the graph with these edges; a member is in one part.

    `edges`: tables of `ranges.EDGES`. Graphs of at most `largest` edges are connected by one task.
    """
    parts, round_number = tuple(edges), 0
    while True:
        total = sum(part.rows for part in parts)
        if total <= (LARGEST_GRAPH if largest is None else largest):
            if len(parts) == 1 and not round_number:
                return parts
            return engine.shuffle(out, Shuffle(f"{name}-last", joined, tasks_of(parts), "member", stars))
        before = sorted(part.digest for part in parts)
        parts = _round(out, engine, parts, f"{name}-{round_number}", range_count(2 * total * EDGE_BYTES))
        round_number += 1
        if sorted(part.digest for part in parts) == before:
            return parts


def _round(out: Shards, engine: TableEngine, parts: Sequence[Part], name: str, count: int) -> tuple[Part, ...]:
    """Return the edges after a round: large stars, then small ones."""
    large = Shuffle(f"{name}-large", _from_both_ends, tasks_of(parts), "number", ranges.large_stars, count, spread=True)
    tasks = tasks_of(engine.shuffle(out, large))
    return engine.shuffle(
        out, Shuffle(f"{name}-small", _from_larger_end, tasks, "number", ranges.small_stars, count, spread=True)
    )


def _from_both_ends(*tables: pa.Table) -> pa.Table:
    return ranges.from_both_ends(pa.concat_tables(tables))


def _from_larger_end(*tables: pa.Table) -> pa.Table:
    return ranges.from_larger_end(pa.concat_tables(tables))
