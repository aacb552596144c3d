"""Copies out of the flat arrays of a token cache's shards, which count as one long array."""

import bisect
from collections.abc import Sequence

import numpy as np

from lineage.storage.ranges import RemoteArray

type TokenArray = np.ndarray | RemoteArray
"""Mapped from a local file, or read from the bucket as it is asked for."""
SHORT_ROW = 512
"""Tokens: up to here whole rows of one shard are quicker together, above one by one."""


def copy_span(arrays: Sequence[TokenArray], bases: Sequence[int], start: int, out: np.ndarray) -> None:
    """Fill `out` [items] with the items from `start` on. `bases`: the first item of each array, and the end of the last."""
    done, shard = 0, bisect.bisect_right(bases, start) - 1
    while done < out.size:
        piece = arrays[shard][start + done - bases[shard] : start - bases[shard] + out.size]
        out[done : done + piece.size] = piece
        done, shard = done + piece.size, shard + 1


def copy_pieces(
    arrays: Sequence[np.ndarray],
    bases: Sequence[int],
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    at: np.ndarray,
) -> None:
    """Fill `out` [rows, items] from each of its flat positions `at` on with `lengths` (at least 1) items from `starts` on.
    A piece stays in its row.

    Short whole rows of one shard are one copy out of overlapping views of its array, other pieces a slice each, with as little
    Python as there can be: an index an item costs ten times as much (20 ns a token; benchmarks/notes/2026-11-22-loader.md).
    Raises: ValueError for an `out` whose rows do not follow each other in memory.
    """
    if not out.flags.c_contiguous:
        raise ValueError(f"rows to fill, {out.shape} with strides {out.strides}, must follow each other in memory")
    flat, edges = out.reshape(-1), np.asarray(bases)
    shards = np.searchsorted(edges, starts, side="right") - 1
    is_within = starts + lengths <= edges[shards + 1]
    is_row = is_within & (lengths == out.shape[1]) & (out.shape[1] <= SHORT_ROW)
    for shard in np.unique(shards[is_row]).tolist():
        here = np.flatnonzero(is_row & (shards == shard))
        out[at[here] // out.shape[1]] = _windows(arrays[shard], out.shape[1])[starts[here] - edges[shard]]
    rest = np.flatnonzero(is_within & ~is_row)
    low, begin = (starts - edges[shards])[rest], at[rest]
    columns = (shards[rest], low, low + lengths[rest], begin, begin + lengths[rest])
    for shard, start, stop, first, end in zip(*(column.tolist() for column in columns), strict=True):
        flat[first:end] = arrays[shard][start:stop]
    for start, length, first in zip(*(column[~is_within].tolist() for column in (starts, lengths, at)), strict=True):
        copy_span(arrays, bases, start, flat[first : first + length])


def _windows(array: np.ndarray, length: int) -> np.ndarray:
    """Views of `length` items from every item on; numpy's `sliding_window_view` takes ten times as long to make them."""
    return np.ndarray((array.size - length + 1, length), array.dtype, array, strides=array.strides * 2)
