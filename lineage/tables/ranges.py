"""Operations on the rows of one range: sort, firsts of a group, distinct rows, stars of a graph."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

EDGES = pa.schema([("root", pa.int64()), ("member", pa.int64())])
"""`member` hangs on `root < member`."""


def sorted_by(table: pa.Table, *names: str) -> pa.Table:
    """Return the rows in ascending order of some columns; equal rows keep their order."""
    columns = [table[name].to_numpy() for name in names]
    order = np.argsort(columns[0], kind="stable") if len(columns) == 1 else np.lexsort(columns[::-1])
    return table.take(pa.array(order))


def is_first(table: pa.Table, *names: str) -> np.ndarray:
    """Return bool [rows]: whether a row of a sorted table differs from the one before it in any of these columns."""
    first = np.ones(table.num_rows, dtype=bool)
    changed = [column[1:] != column[:-1] for column in (table[name].to_numpy() for name in names)]
    first[1:] = np.logical_or.reduce(changed)
    return first


def repeats(table: pa.Table, keys: Sequence[str], value: str) -> tuple[np.ndarray, np.ndarray]:
    """Group rows by keys; return `value` of every row that is not the first of its group, and of that first one.

    Rows must arrive in ascending order of `value`.
    """
    ordered = sorted_by(table, *keys)
    first, values = is_first(ordered, *keys), ordered[value].to_numpy()
    owners = values[first][np.cumsum(first) - 1] if values.size else values
    return values[~first], owners[~first]


def edges(root: np.ndarray, member: np.ndarray) -> pa.Table:
    """Return a table of `EDGES`."""
    return pa.Table.from_arrays([pa.array(root, pa.int64()), pa.array(member, pa.int64())], schema=EDGES)


def from_both_ends(table: pa.Table) -> pa.Table:
    """Return every edge twice, so that each number meets all its neighbours."""
    root, member = table["root"].to_numpy(), table["member"].to_numpy()
    return _neighbours(np.concatenate([root, member]), np.concatenate([member, root]))


def from_larger_end(table: pa.Table) -> pa.Table:
    """Return every edge at its larger end, so that each number meets its smaller neighbours."""
    root, member = table["root"].to_numpy(), table["member"].to_numpy()
    return _neighbours(np.maximum(root, member), np.minimum(root, member))


def large_stars(table: pa.Table) -> pa.Table:
    """Hang every larger neighbour of a number on the smallest of its neighbourhood."""
    number, neighbour, least, _ = _neighbourhoods(table)
    larger = neighbour > number
    return _distinct(least[larger], neighbour[larger])


def small_stars(table: pa.Table) -> pa.Table:
    """Hang a number and its smaller neighbours on the smallest of them."""
    number, neighbour, least, first = _neighbourhoods(table)
    return _distinct(np.concatenate([least, least[first]]), np.concatenate([neighbour, number[first]]))


def _neighbours(number: np.ndarray, neighbour: np.ndarray) -> pa.Table:
    return pa.table({"number": pa.array(number, pa.int64()), "neighbour": pa.array(neighbour, pa.int64())})


def _neighbourhoods(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return number, neighbour, the least of number and its neighbours, and whether the row is the number's first."""
    ordered = sorted_by(table, "number", "neighbour")
    number, neighbour = ordered["number"].to_numpy(), ordered["neighbour"].to_numpy()
    first = is_first(ordered, "number")
    least = np.minimum(neighbour[first], number[first])[np.cumsum(first) - 1] if number.size else number
    return number, neighbour, least, first


def _distinct(root: np.ndarray, member: np.ndarray) -> pa.Table:
    ordered = sorted_by(edges(root, member).filter(pa.array(root != member)), "root", "member")
    return ordered.filter(pa.array(is_first(ordered, "root", "member")))
