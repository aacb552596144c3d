"""The greedy walk over one cluster: a vector is removed if its cosine with one that stays is high enough.

Vectors are visited in their given order (of ids). Each is compared with the earlier ones that stay. The walk is made at
several thresholds at once, because the matrix products, which are nearly all of the work, are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datakit.semantics.vectors import Vectors

BLOCK_ROWS = 1_024
_SLACK = np.float32(1 - 1e-5)
"""Of the float32 bound that finds candidates; their cosines are then exact."""


@dataclass(frozen=True)
class Block:
    """Neighbours in the order of the walk that stay at some threshold."""

    rows: np.ndarray
    """int64 [n]: places in the walk."""
    wide: np.ndarray
    """float32 [n, width], whole numbers."""
    squares: np.ndarray
    """float64 [n]: squared lengths."""
    kept: np.ndarray
    """bool [n, thresholds]."""


@dataclass(frozen=True)
class Removals:
    """What a walk removes: `row` for `kept_row` at a threshold. Ordered by threshold, then row."""

    threshold: np.ndarray
    row: np.ndarray
    kept_row: np.ndarray
    cosine: np.ndarray


def walk(vectors: Vectors, thresholds: Sequence[float], gone: np.ndarray | None = None) -> Removals:
    """Return the removals of `vectors` int8 [n, width] at each threshold; the match is the nearest vector that stays, the
    first of equally near ones. `gone` bool [n, thresholds]: vectors that do not take part at a threshold.
    """
    bars = np.array(thresholds)
    gone = np.zeros((len(vectors), bars.size), bool) if gone is None else gone
    earlier: list[Block] = []
    cosines, matches = [np.zeros((0, bars.size))], [np.zeros((0, bars.size), np.int64)]
    for start in range(0, len(vectors), BLOCK_ROWS):
        wide = vectors[start : start + BLOCK_ROWS].astype(np.float32)
        squares = np.einsum("ij,ij->i", wide, wide).astype(np.float64)
        best, match = np.full((len(wide), bars.size), -np.inf), np.full((len(wide), bars.size), -1)
        for block in earlier:
            pairs = _pairs(wide, squares, block.wide, block.squares, bars.min())
            _match(pairs, block, bars, best, match)
        rows = start + np.arange(len(wide))
        kept = (match < 0) & ~gone[rows]
        _walk_block(_pairs(wide, squares, wide, squares, bars.min()), rows, bars, kept, best, match)
        stays = kept.any(axis=1)
        earlier.append(Block(rows[stays], wide[stays], squares[stays], kept[stays]))
        cosines.append(best)
        matches.append(match)
    best, match = np.concatenate(cosines), np.concatenate(matches)
    threshold, row = np.nonzero(((match >= 0) & ~gone).T)
    return Removals(threshold, row, match[row, threshold], best[row, threshold])


type _Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row of a block, row of the other one, cosine; ordered by the first two."""


def _pairs(wide: np.ndarray, squares: np.ndarray, other: np.ndarray, other_squares: np.ndarray, least: float) -> _Pairs:
    """Return all pairs with a cosine of at least `least`."""
    dots = wide @ other.T
    lengths, others = np.sqrt(squares).astype(np.float32), np.sqrt(other_squares).astype(np.float32)
    row, column = np.nonzero(dots >= (lengths * np.float32(least) * _SLACK)[:, None] * others[None, :])
    # The product of squares is whole and below 2**46, so equal vectors have the cosine 1 exactly.
    products = squares[row] * other_squares[column]
    cosine = dots[row, column] / np.sqrt(np.where(products > 0, products, 1))
    near = cosine >= least
    return row[near], column[near], cosine[near]


def _match(pairs: _Pairs, block: Block, bars: np.ndarray, best: np.ndarray, match: np.ndarray) -> None:
    """Note for each row the nearest earlier vector that stays, at each threshold."""
    row, column, cosine = pairs
    order = np.lexsort((column, -cosine, row))
    row, column, cosine = row[order], column[order], cosine[order]
    for number, bar in enumerate(bars):
        is_match = (cosine >= bar) & block.kept[column, number]
        rows, first = np.unique(row[is_match], return_index=True)
        found, at = cosine[is_match][first], block.rows[column[is_match][first]]
        nearer = found > best[rows, number]
        best[rows[nearer], number], match[rows[nearer], number] = found[nearer], at[nearer]


def _walk_block(
    pairs: _Pairs, rows: np.ndarray, bars: np.ndarray, kept: np.ndarray, best: np.ndarray, match: np.ndarray
) -> None:
    """Walk within a block, whose matches with earlier ones are known; note in `kept` which stay."""
    is_earlier = pairs[1] < pairs[0]
    row, column, cosine = (values[is_earlier] for values in pairs)
    found = np.unique(row)
    bounds = (np.searchsorted(row, found, side=side).tolist() for side in ("left", "right"))
    for here, start, stop in zip(found.tolist(), *bounds, strict=True):
        others, near = column[start:stop], cosine[start:stop]
        for number, bar in enumerate(bars):
            scores = np.where(kept[others, number] & (near >= bar), near, -np.inf)
            at = int(scores.argmax())
            if scores[at] > best[here, number]:
                best[here, number], match[here, number] = scores[at], rows[others[at]]
                kept[here, number] = False
