"""Rows of a batch, from the pieces of the token caches that its sequences are made of: tokens, loss weights, segment ids."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lineage.sequences import Sequences
from lineage.token_cache import TokenCache

PADDING = -1
"""Segment of the positions that hold no token; the token there is 0, its weight nought."""
REMOTE_READS = 16
"""Requests at once, of caches that stay in the bucket: each takes tens of milliseconds."""


@dataclass(frozen=True)
class Pieces:
    """What rows are made of, int64 [pieces]: tokens `[start, start + length)` of cache `component`, in `row` from `offset` on.

    Sorted by row, then offset; the pieces of a row are of one component.
    """

    rows: np.ndarray
    components: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray

    def of_rows(self, first: int, end: int, base: int = 0) -> "Pieces":
        """Those of rows `[first, end)`, which become rows from `base` on."""
        low, high = np.searchsorted(self.rows, (first, end))
        here = slice(low, high)
        return Pieces(
            self.rows[here] + (base - first), self.components[here], self.starts[here], self.lengths[here], self.offsets[here]
        )

    @staticmethod
    def joined(parts: Sequence["Pieces"]) -> "Pieces":
        """Pieces of rows that come one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = ("rows", "components", "starts", "lengths", "offsets")
        return Pieces(*(np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]) for name in columns))

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(row, component, start, length, offset) of each."""
        columns = (self.rows, self.components, self.starts, self.lengths, self.offsets)
        return zip(*(column.tolist() for column in columns), strict=True)


def pieces_of(layouts: Sequence[Sequences], components: np.ndarray, sequences: np.ndarray) -> Pieces:
    """Pieces of the rows that read `sequences[row]` of `components[row]`."""
    found = [np.zeros((5, 0), np.int64)]
    for component in np.unique(components).tolist():
        rows = np.flatnonzero(components == component)
        which, starts, lengths = layouts[component].pieces(sequences[rows])
        ends = np.cumsum(lengths)
        begins_row = np.diff(which, prepend=-1) > 0
        before = np.maximum.accumulate(np.where(begins_row, ends - lengths, 0))
        found.append(np.stack([rows[which], np.full(which.size, component), starts, lengths, ends - lengths - before]))
    every = np.concatenate(found, axis=1)
    return Pieces(*every[:, np.argsort(every[0], kind="stable")])


def tokens_of(caches: Sequence[TokenCache], pieces: Pieces, num_rows: int, seq_len: int) -> np.ndarray:
    """Token ids, int32 [rows, seq_len]."""
    full = int(pieces.lengths.sum()) == num_rows * seq_len
    out = (np.empty if full else np.zeros)((num_rows, seq_len), np.int32)
    _fill(caches, pieces, out, TokenCache.read_into)
    return out


def weights_of(
    caches: Sequence[TokenCache], pieces: Pieces, num_rows: int, seq_len: int, segments: np.ndarray | None
) -> np.ndarray:
    """Loss weight of each token as what is to be predicted, float32 [rows, seq_len]; nought in padding.

    With `segments` also of the first token of each: what it follows is no part of its document, and attention hides it.
    """
    out = np.zeros((num_rows, seq_len), np.float32)
    _fill(caches, pieces, out, TokenCache.read_weights_into)
    if segments is not None:
        out[:, 1:][segments[:, 1:] != segments[:, :-1]] = 0
    return out


def segments_of(
    caches: Sequence[TokenCache], layouts: Sequence[Sequences], pieces: Pieces, num_rows: int, seq_len: int
) -> np.ndarray:
    """Which tokens of a row are of one document, int32 [rows, seq_len]: numbers that do not fall along a row, then PADDING."""
    out = np.zeros((num_rows, seq_len), np.int32)
    out[pieces.rows, pieces.offsets] = 1
    for component in np.unique(pieces.components).tolist():
        if layouts[component].is_packed:
            continue  # a piece is of one document
        here = np.flatnonzero(pieces.components == component)
        starts, ends = pieces.starts[here], caches[component].ends
        firsts = np.searchsorted(ends, starts, side="right")
        counts = np.searchsorted(ends, starts + pieces.lengths[here] - 1, side="right") - firsts
        which = np.repeat(np.arange(here.size), counts)
        at = ends[np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(which.size)]
        np.add.at(out, (pieces.rows[here][which], pieces.offsets[here][which] + at - starts[which]), 1)
    np.cumsum(out, axis=1, out=out)
    out -= 1
    filled = np.bincount(pieces.rows, pieces.lengths, num_rows)
    out[np.arange(seq_len) >= filled[:, None]] = PADDING
    return out


def _fill(
    caches: Sequence[TokenCache], pieces: Pieces, out: np.ndarray, read_into: Callable[[TokenCache, int, np.ndarray], None]
) -> None:
    def fill(piece: tuple[int, int, int, int, int]) -> None:
        row, component, start, length, offset = piece
        read_into(caches[component], start, out[row, offset : offset + length])

    if any(cache.is_remote for cache in caches):
        with ThreadPoolExecutor(REMOTE_READS, thread_name_prefix="ranges") as pool:
            list(pool.map(fill, pieces))
    else:
        for piece in pieces:
            fill(piece)
