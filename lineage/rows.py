"""Rows of a batch, from the pieces of the token caches that its sequences are made of: tokens, loss weights, segment ids."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lineage.sequences import Sequences
from lineage.token_cache import TokenCache

PADDING = -1
"""Segment of the positions that hold no token; the token there is 0, its weight nought."""
MANY_ROWS = 16
"""Whole rows of a component that are copied together; fewer are quicker one by one."""
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

    def where(self, mask: np.ndarray) -> "Pieces":
        """Those that the mask has true."""
        return Pieces(self.rows[mask], self.components[mask], self.starts[mask], self.lengths[mask], self.offsets[mask])

    @staticmethod
    def sorted(columns: np.ndarray) -> "Pieces":
        """From columns [5, pieces] whose rows are in order within a component."""
        return Pieces(*columns[:, np.argsort(columns[0], kind="stable")])

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
    return Pieces.sorted(np.concatenate(found, axis=1))


def split_by_document(caches: Sequence[TokenCache], layouts: Sequence[Sequences], pieces: Pieces) -> Pieces:
    """The same rows in pieces of which each is of one document (or of the part of one that a cut row holds)."""
    found = [np.zeros((5, 0), np.int64)]
    for component in np.unique(pieces.components).tolist():
        here = np.flatnonzero(pieces.components == component)
        starts, lengths, ends = pieces.starts[here], pieces.lengths[here], caches[component].ends
        if layouts[component].is_packed:
            which, edges = np.arange(here.size), starts
        else:
            firsts = ends.at_or_before(starts)
            counts = ends.at_or_before(starts + lengths - 1) - firsts + 1  # its start too
            which = np.repeat(np.arange(here.size), counts)
            rank = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
            edges = starts[which]
            edges[rank > 0] = ends.take((firsts[which] + rank - 1)[rank > 0])
        stops = np.where(np.diff(which, append=here.size) > 0, (starts + lengths)[which], np.append(edges[1:], 0))
        columns = (pieces.rows[here][which], np.full(which.size, component), edges, stops - edges)
        rows = np.stack([*columns, pieces.offsets[here][which] + edges - starts[which]])
        found.append(rows[:, stops > edges])  # without documents that have no token
    return Pieces.sorted(np.concatenate(found, axis=1))


class Rows(NamedTuple):
    """Rows of a batch, all [rows, seq_len]."""

    tokens: np.ndarray
    """int32; 0 in padding."""
    weights: np.ndarray | None
    """float32, of each token as what is to be predicted; None where every one counts once."""
    segment_ids: np.ndarray | None
    """int32: tokens of one document have one number, which rises along a row; PADDING holds no token. None if not asked for."""


def read_rows(caches: Sequence[TokenCache], pieces: Pieces, documents: Pieces | None, num_rows: int, seq_len: int) -> Rows:
    """Read what pieces say. With `documents`, the same rows split by document, there are segment ids, and the first token of
    each counts for nothing: what it follows is no part of its document, and attention hides it."""
    is_full = int(pieces.lengths.sum()) == num_rows * seq_len
    tokens = (np.empty if is_full else np.zeros)((num_rows, seq_len), np.int32)
    _fill(caches, pieces, tokens)
    if is_full and documents is None and not any(cache.has_weights for cache in caches):
        return Rows(tokens, None, None)
    filled = np.arange(seq_len) < np.bincount(pieces.rows, pieces.lengths, num_rows)[:, None]
    weights = filled.astype(np.float32)
    if any(cache.has_weights for cache in caches):
        _fill(caches, pieces, weights, weights=True)
    if documents is None:
        return Rows(tokens, weights, None)
    weights[documents.rows, documents.offsets] = 0
    segments = np.zeros((num_rows, seq_len), np.int32)
    segments[documents.rows, documents.offsets] = 1
    np.cumsum(segments, axis=1, out=segments)
    return Rows(tokens, weights, np.where(filled, segments - 1, PADDING))


def _fill(caches: Sequence[TokenCache], pieces: Pieces, out: np.ndarray, *, weights: bool = False) -> None:
    """Copy what pieces say, tokens or their weights. Whole rows, which cut sequences are, are copied many at a time."""
    left = np.ones(len(pieces.rows), bool)
    if len(left) >= MANY_ROWS:
        is_whole = pieces.lengths == out.shape[1]
        for component in np.unique(pieces.components[is_whole]).tolist():
            here = is_whole & (pieces.components == component)
            if not caches[component].is_remote and np.count_nonzero(here) >= MANY_ROWS:
                left &= ~here
                caches[component].read_rows_into(pieces.starts[here], out, pieces.rows[here], weights=weights)
    rest = pieces if left.all() else pieces.where(left)

    def fill(piece: tuple[int, int, int, int, int]) -> None:
        row, component, start, length, offset = piece
        read_into = caches[component].read_weights_into if weights else caches[component].read_into
        read_into(start, out[row, offset : offset + length])

    if any(cache.is_remote for cache in caches):
        with ThreadPoolExecutor(REMOTE_READS, thread_name_prefix="ranges") as pool:
            list(pool.map(fill, rest))
    else:
        for piece in rest:
            fill(piece)
