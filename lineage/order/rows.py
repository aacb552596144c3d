"""Rows of a batch, from the pieces of token caches that its sequences consist of: tokens, loss weights, segment ids."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lineage.order.sequences import Sequences
from lineage.order.token_cache import TokenCache

PADDING = -1
"""Segment of the positions without a token; the token there is 0 and its weight zero."""
REMOTE_READS = 16
"""Concurrent requests for caches that stay in the bucket: each takes tens of milliseconds."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of rows, int64 [pieces]: tokens `[start, start + length)` of cache `component`, in `row` from `offset`
    on.

    Sorted by row, then offset; the pieces of a row are of one component.
    """

    rows: np.ndarray
    components: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray

    def of_rows(self, first: int, end: int, base: int = 0) -> "Pieces":
        """Return the pieces of rows `[first, end)`, renumbered as rows from `base` on."""
        low, high = np.searchsorted(self.rows, (first, end))
        here = slice(low, high)
        return Pieces(
            self.rows[here] + (base - first), self.components[here], self.starts[here], self.lengths[here], self.offsets[here]
        )

    def where(self, mask: np.ndarray) -> "Pieces":
        """Return the pieces for which the mask is true."""
        return Pieces(self.rows[mask], self.components[mask], self.starts[mask], self.lengths[mask], self.offsets[mask])

    @staticmethod
    def joined(parts: Sequence["Pieces"]) -> "Pieces":
        """Join pieces of consecutive rows."""
        if len(parts) == 1:
            return parts[0]
        columns = ("rows", "components", "starts", "lengths", "offsets")
        return Pieces(*(np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]) for name in columns))

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (row, component, start, length, offset) of each."""
        columns = (self.rows, self.components, self.starts, self.lengths, self.offsets)
        return zip(*(column.tolist() for column in columns), strict=True)


def pieces_of(layouts: Sequence[Sequences], components: np.ndarray, sequences: np.ndarray) -> Pieces:
    """Return the pieces of the rows that read `sequences[row]` of `components[row]`."""
    collected = [np.zeros((4, 0), np.int64)]
    for component in np.unique(components).tolist():
        rows = np.flatnonzero(components == component)
        which, starts, lengths = layouts[component].pieces(sequences[rows])
        collected.append(np.stack([rows[which], np.full(which.size, component), starts, lengths]))
    columns = np.concatenate(collected, axis=1)
    rows, components, starts, lengths = columns[:, np.argsort(columns[0], kind="stable")]
    before = np.cumsum(lengths) - lengths
    return Pieces(rows, components, starts, lengths, before - before[np.searchsorted(rows, rows)])


def split_by_document(caches: Sequence[TokenCache], layouts: Sequence[Sequences], pieces: Pieces) -> Pieces:
    """Split pieces so that each is of one document (or of the part of one that a cut row holds)."""
    collected = [np.zeros((2, 0), np.int64)]
    for component in np.unique(pieces.components).tolist():
        here = np.flatnonzero(pieces.components == component)
        if layouts[component].is_packed:
            collected.append(np.stack([here, pieces.starts[here]]))
            continue
        starts, stops, ends = pieces.starts[here], (pieces.starts + pieces.lengths)[here], caches[component].ends
        firsts, lasts = ends.at_or_before(np.concatenate([starts, stops - 1])).reshape(2, -1)
        which, rank = _ragged(lasts - firsts + 1)  # Its start too.
        edges = starts[which]
        edges[rank > 0] = ends.take((firsts[which] + rank - 1)[rank > 0])
        collected.append(np.stack([here[which], edges]))
    columns = np.concatenate(collected, axis=1)
    which, starts = columns[:, np.argsort(columns[0], kind="stable")]
    stops = np.append(starts[1:], 0)
    is_last = np.diff(which, append=-1) != 0
    stops[is_last] = (pieces.starts + pieces.lengths)[which[is_last]]
    some = stops > starts  # Without documents that have no token.
    which, starts, stops = which[some], starts[some], stops[some]
    offsets = pieces.offsets[which] + starts - pieces.starts[which]
    return Pieces(pieces.rows[which], pieces.components[which], starts, stops - starts, offsets)


def _ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (which, rank), int64 [sum of counts]: `counts[which]` entries each, numbered from 0."""
    which = np.repeat(np.arange(counts.size), counts)
    return which, np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)


class Rows(NamedTuple):
    """Rows of a batch, all [rows, seq_len]."""

    tokens: np.ndarray
    """int32; 0 in padding."""
    weights: np.ndarray | None
    """float32, the weight of each token as a prediction target; None if every token counts once."""
    segment_ids: np.ndarray | None
    """int32: tokens of one document have one number, which rises along a row; PADDING holds no token. None if not asked
    for.
    """


def read_rows(caches: Sequence[TokenCache], pieces: Pieces, documents: Pieces | None, num_rows: int, seq_len: int) -> Rows:
    """Read the pieces. With `documents`, the same rows split by document, there are segment ids, and the first token of
    each document has weight zero: its predecessor belongs to another document, and attention hides it.
    """
    filled = np.bincount(pieces.rows, pieces.lengths, num_rows).astype(np.int64)
    is_full, has_weights = bool((filled == seq_len).all()), any(cache.has_weights for cache in caches)
    tokens = (np.empty if is_full else np.zeros)((num_rows, seq_len), np.int32)
    _fill(caches, pieces, tokens)
    if is_full and documents is None and not has_weights:
        return Rows(tokens, None, None)
    runs = np.stack([filled, seq_len - filled], axis=1)
    weights = np.repeat(np.tile(np.array([1, 0], np.float32), num_rows), runs.ravel()).reshape(tokens.shape)
    if has_weights:
        _fill(caches, pieces, weights, weights=True)
    if documents is None:
        return Rows(tokens, weights, None)
    weights[documents.rows, documents.offsets] = 0
    return Rows(tokens, weights, _segment_ids(documents, seq_len - filled).reshape(tokens.shape))


def _segment_ids(documents: Pieces, padding: np.ndarray) -> np.ndarray:
    """Return int32 row by row: its documents by number, then `padding[row]` times PADDING."""
    numbers = np.arange(documents.rows.size) - np.searchsorted(documents.rows, documents.rows)
    order = np.argsort(np.concatenate([documents.rows, np.arange(padding.size)]), kind="stable")
    values = np.concatenate([numbers, np.full(padding.size, PADDING)]).astype(np.int32)
    return np.repeat(values[order], np.concatenate([documents.lengths, padding])[order])


def _fill(caches: Sequence[TokenCache], pieces: Pieces, out: np.ndarray, *, weights: bool = False) -> None:
    """Copy the tokens of pieces, or their weights if the cache has some."""
    at = pieces.rows * out.shape[1] + pieces.offsets
    remote = []
    for component in np.unique(pieces.components).tolist():
        cache, here = caches[component], np.flatnonzero(pieces.components == component)
        if weights and not cache.has_weights:
            continue
        starts, lengths, to = pieces.starts[here], pieces.lengths[here], at[here]
        if cache.is_remote:
            remote += [(cache, *piece) for piece in zip(starts.tolist(), lengths.tolist(), to.tolist(), strict=True)]
        else:
            cache.read_pieces_into(starts, lengths, out, to, weights=weights)
    if remote:
        _fill_remote(remote, out.reshape(-1), weights=weights)


def _fill_remote(pieces: Sequence[tuple[TokenCache, int, int, int]], out: np.ndarray, *, weights: bool) -> None:
    """Yield (cache, start, length, where in `out`) of each."""

    def fill(piece: tuple[TokenCache, int, int, int]) -> None:
        cache, start, length, to = piece
        (cache.read_weights_into if weights else cache.read_into)(start, out[to : to + length])

    with ThreadPoolExecutor(REMOTE_READS, thread_name_prefix="ranges") as pool:
        list(pool.map(fill, pieces))
