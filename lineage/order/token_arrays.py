"""Copies out of the flat arrays of a token cache's shards, which count as one long array."""

import bisect
from collections.abc import Sequence

import numpy as np

from lineage.storage.ranges import RemoteArray

type TokenArray = np.ndarray | RemoteArray
"""Mapped from a local file, or read from the bucket on demand."""
SHORT_ROW = 512
"""Tokens in a row: up to here copying whole rows of one shard together is faster, above it one by one."""


def copy_span(arrays: Sequence[TokenArray], bases: Sequence[int], start: int, out: np.ndarray) -> None:
    """Fill `out` [items] with the items from `start` on. `bases`: the first item of each array, and the end of the
    last.
    """
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
    """Fill `out` [rows, items]: from each of its flat positions `at` on, `lengths` (at least 1) items from `starts` on.
    A piece stays in its row.

    Short whole rows of one shard are one copy out of overlapping views of its array. Other pieces are one slice each,
    with as little Python as possible: an index for each item costs ten times as much (20 ns a token;
    benchmarks/notes/2026-11-22-loader.md). Raises: ValueError for an `out` whose rows are not contiguous in memory.
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
    """Return views of `length` items from every item on; numpy's `sliding_window_view` takes ten times as long to make
    them.
    """
    return np.ndarray((array.size - length + 1, length), array.dtype, array, strides=array.strides * 2)
