"""Rows of a batch, from the pieces of the token caches that its sequences are made of: tokens, loss weights, segment ids."""

from collections.abc import Callable, Sequence
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

    Sorted by component, then row.
    """

    rows: np.ndarray
    components: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray


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
    return Pieces(*np.concatenate(found, axis=1))


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
    out = np.full((num_rows, seq_len), PADDING, np.int32)
    columns = (pieces.rows, pieces.components, pieces.starts, pieces.lengths, pieces.offsets)
    last_row, number = -1, 0
    for row, component, start, length, offset in zip(*(column.tolist() for column in columns), strict=True):
        number = 0 if row != last_row else number + 1
        last_row = row
        if layouts[component].is_packed:
            out[row, offset : offset + length] = number
        else:
            edges = caches[component].document_edges(start, start + length)
            out[row, offset : offset + length] = np.repeat(np.arange(edges.size - 1), np.diff(edges))
    return out


def _fill(
    caches: Sequence[TokenCache], pieces: Pieces, out: np.ndarray, read_into: Callable[[TokenCache, int, np.ndarray], None]
) -> None:
    columns = (pieces.rows, pieces.components, pieces.starts, pieces.lengths, pieces.offsets)
    work = zip(*(column.tolist() for column in columns), strict=True)

    def fill(piece: tuple[int, int, int, int, int]) -> None:
        row, component, start, length, offset = piece
        read_into(caches[component], start, out[row, offset : offset + length])

    if any(caches[component].is_remote for component in np.unique(pieces.components).tolist()):
        with ThreadPoolExecutor(REMOTE_READS, thread_name_prefix="ranges") as pool:
            list(pool.map(fill, work))
    else:
        for piece in work:
            fill(piece)
