"""Pack sequences with equal beginnings into one row, so that shared prefixes are computed once.

The choices of a question share its text, the questions of a task their examples. A row holds a tree of tokens: the parent of a
token is the token before it in its sequence. A token attends to its ancestors only, at the position that it has in its own
sequence. So every score equals that of the sequence alone, up to the order of float sums, and only the end of a row is padding.

Shapes: S places of a row, N wanted scores of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

SMALLEST_ROW = 512
"""Places of a row. With fewer, matrix products are small; with more, masked attention between sequences costs more."""
LARGEST_SHARED_ROW = 2048


@dataclass(frozen=True)
class Wanted:
    """The scores of the last `len(targets)` tokens of one sequence, each at the place of the token before it."""

    sequence: int
    places: Int[np.ndarray, " N"]
    targets: Int[np.ndarray, " N"]


@dataclass
class Row:
    """A tree of tokens: for each place its token, its position in its sequences, and the places that it attends to."""

    size: int
    used: int = 0
    tokens: Int[np.ndarray, " S"] = field(init=False)
    positions: Int[np.ndarray, " S"] = field(init=False)
    reach: Bool[np.ndarray, "S S"] = field(init=False)
    wanted: list[Wanted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens, self.positions = np.zeros(self.size, np.int32), np.zeros(self.size, np.int32)
        self.reach = np.eye(self.size, dtype=bool)  # an empty place attends to itself: a softmax over nothing is NaN

    def add(self, shared: Int[np.ndarray, " A"], tokens: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """Append tokens behind the places `shared`, which hold all their ancestors in order; return the new places."""
        places = np.arange(self.used, self.used + len(tokens))
        self.tokens[places] = tokens
        self.positions[places] = np.arange(len(shared), len(shared) + len(tokens))
        self.reach[np.ix_(places, shared)] = True
        self.reach[np.ix_(places, places)] = np.tri(len(places), dtype=bool)
        self.used += len(tokens)
        return places


def pack(sequences: Sequence[np.ndarray], tails: Sequence[int]) -> Iterator[Row]:
    """Rows in which the last `tails[i]` tokens of every sequence can be scored. A sequence has at least `tails[i] + 1`
    tokens.

    Sequences are sorted, because in lexicographic order neighbours share the most; each shares with the one before it
    in its row.
    """
    by_size: dict[int, list[int]] = {}
    for index, (sequence, tail) in enumerate(zip(sequences, tails, strict=True)):
        if tail:
            by_size.setdefault(row_size(len(sequence) - 1), []).append(index)
    for size, indices in sorted(by_size.items()):
        row, way, before = Row(size), np.zeros(0, np.int64), np.zeros(0, np.int32)
        for index in sorted(indices, key=lambda i: np.asarray(sequences[i], ">u4").tobytes()):
            inputs = np.asarray(sequences[index][:-1], np.int32)
            shared = _common(before, inputs)
            if row.used + len(inputs) - shared > size:
                yield row
                row, way, shared = Row(size), way[:0], 0
            way, before = np.concatenate([way[:shared], row.add(way[:shared], inputs[shared:])]), inputs
            tail = tails[index]
            row.wanted.append(Wanted(index, way[-tail:], np.asarray(sequences[index][-tail:], np.int32)))
        yield row


def row_size(longest: int) -> int:
    """Places of a row for sequences of `longest` inputs: a power of two, with room for several sequences while that is
    cheap."""
    size = SMALLEST_ROW
    while size < longest or (size < 2 * longest and size < LARGEST_SHARED_ROW):
        size *= 2
    return size


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common prefix of two sequences."""
    least = min(len(one), len(other))
    differ = np.flatnonzero(one[:least] != other[:least])
    return int(differ[0]) if differ.size else least
