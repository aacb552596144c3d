"""Share out the sequences of each block among components, so that weights hold exactly in the long run.

There are two kinds, and a mixture names one. `carried` is largest remainder, with the error carried from block to
block: a component is always within one sequence of its share, but a late block is found by walking through all earlier
ones. `split` halves the set of components again and again and shares the turns of every half by rounding, which is a
closed form in both directions (`Split`).
"""

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

type Apportioning = Literal["carried", "split"]
APPORTIONINGS: tuple[Apportioning, ...] = typing.get_args(Apportioning.__value__)
WEIGHT_BITS = 50
"""A weight is a whole number of 2**-50: floats near one differ by about as much, and products with it can be divided
exactly.
"""
MAX_SEQUENCES = 1 << 50


@dataclass(frozen=True)
class OrderPhase:
    """Normalized weights [components] from a block on."""

    start_block: int
    weights: np.ndarray


class Shares(Protocol):
    """Which of a component's turns are in a block."""

    def before(self, blocks: np.ndarray) -> np.ndarray:
        """Return the sequences of every component in all blocks before each of `blocks`, int64 [blocks, components]."""
        ...

    def blocks_of(self, component: int, turns: np.ndarray) -> np.ndarray:
        """Return the blocks of a component's turns (counted from 0). They must be in blocks for which `before` was
        called.
        """
        ...


def check_apportioning(kind: str, where: str) -> None:
    """Refuse an unknown name. Raises: ValueError."""
    if kind not in APPORTIONINGS:
        raise ValueError(f"{where}apportioning is {kind!r}; allowed: {', '.join(APPORTIONINGS)}")


def shares_of(kind: Apportioning, phases: Sequence[OrderPhase], block_size: int) -> Shares:
    """Return the shares of an order by the name of their kind."""
    if kind == "carried":
        return Carried(tuple(phases), block_size)
    return SplitPhases(tuple(phases), block_size)


def apportion(weights: np.ndarray, block_size: int, debt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts [components] of one block, summing to `block_size`, and the error left for the next block.

    `weights` sum to 1; `debt` is what earlier blocks still owe each component, in sequences.
    """
    owed = debt + weights * block_size
    counts = np.where(weights > 0, np.floor(np.maximum(owed, 0)), 0).astype(np.int64)
    rank = np.where(weights > 0, owed - counts, -np.inf)
    while (missing := block_size - int(counts.sum())) > 0:
        top = np.argsort(-rank, kind="stable")[: min(missing, int((weights > 0).sum()))]
        counts[top] += 1
        rank[top] -= 1
    while counts.sum() > block_size:
        candidates = np.flatnonzero(counts > 0)
        lowest = candidates[np.argmin(rank[candidates])]
        counts[lowest] -= 1
        rank[lowest] += 1
    return counts, owed - counts


@dataclass
class Carried:
    """`apportion` from block to block, computed once and kept: two tables that grow with the last block asked for."""

    phases: tuple[OrderPhase, ...]
    block_size: int
    _walked: int = 0
    """How many rows of `_before` are filled; they grow by doubling."""
    _before: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """[blocks + 1, components]."""
    _debt: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def before(self, blocks: np.ndarray) -> np.ndarray:
        self._walk_to(int(blocks.max(initial=0)))
        return self._before[blocks]

    def blocks_of(self, component: int, turns: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._before[: self._walked, component], turns, side="right") - 1

    def _walk_to(self, block: int) -> None:
        components = self.phases[0].weights.size
        if block >= len(self._before):
            room = max(block + 1, 2 * len(self._before)) - len(self._before)
            self._before = np.pad(self._before.reshape(-1, components), ((0, room), (0, 0)))
        self._walked = max(self._walked, 1)
        while self._walked <= block:
            index = self._walked - 1
            phase = next(phase for phase in reversed(self.phases) if phase.start_block <= index)
            debt = np.zeros(components) if phase.start_block == index else self._debt
            counts, self._debt = apportion(phase.weights, self.block_size, debt)
            self._before[index + 1] = self._before[index] + counts
            self._walked += 1


@dataclass
class SplitPhases:
    """One `Split` for each phase, from the phase's first block on."""

    phases: tuple[OrderPhase, ...]
    block_size: int

    def __post_init__(self) -> None:
        self._starts = np.array([phase.start_block for phase in self.phases], np.int64)
        self._splits = [Split.of(phase.weights) for phase in self.phases]
        lengths = np.diff(self._starts) * self.block_size
        within = [split.before(lengths[number : number + 1]) for number, split in enumerate(self._splits[:-1])]
        none = np.zeros((1, self.phases[0].weights.size), np.int64)
        self._bases = np.cumsum(np.concatenate([none, *within]), axis=0)
        """Sequences before each phase [phases, components]."""

    def before(self, blocks: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self._starts, blocks, side="right") - 1
        turns_before = self._bases[which]
        for number in np.unique(which).tolist():
            here = which == number
            turns_before[here] += self._splits[number].before((blocks[here] - self._starts[number]) * self.block_size)
        return turns_before

    def blocks_of(self, component: int, turns: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self._bases[:, component], turns, side="right") - 1
        numbers = np.empty_like(turns)
        for number in np.unique(which).tolist():
            here = which == number
            places = self._splits[number].places(component, turns[here] - self._bases[number, component])
            numbers[here] = self._starts[number] + places // self.block_size
        return numbers


@dataclass(frozen=True)
class Split:
    """Turns of components by halving: of a node's first n turns its left half has n times its share, rounded.

    The turns of both halves grow by zero or one with every turn of the node, so all counts do at every level, and their
    sum is n. A component differs from its share by less than half a turn for each level. The place of a turn is the
    same rounding, inverted.
    """

    lefts: tuple[np.ndarray, ...]
    """Weight of the left half of each node, one level at a time from the root [nodes of the level], in 2**-50."""
    totals: tuple[np.ndarray, ...]
    """Weight of the whole node; 1 if it is zero."""
    size: int

    @staticmethod
    def of(weights: np.ndarray) -> "Split":
        """Build it from normalized weights [components]; rounding loses no positive weight."""
        whole = np.where(weights > 0, np.maximum(1, np.rint(weights * 2.0**WEIGHT_BITS)), 0).astype(np.int64)
        levels = [np.pad(whole, (0, (1 << max(0, whole.size - 1).bit_length()) - whole.size))]
        while levels[0].size > 1:
            levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
        lefts = tuple(below[::2] for below in levels[1:])
        return Split(lefts, tuple(np.maximum(level, 1) for level in levels[:-1]), whole.size)

    def before(self, turns: np.ndarray) -> np.ndarray:
        """Return how many of the first `turns` (int64 [n]) each component has, int64 [n, components]."""
        if int(turns.max(initial=0)) > MAX_SEQUENCES:
            raise ValueError(f"global sequence {int(turns.max())} is beyond 2**50, where shares are not exact any more")
        counts = turns[:, None]
        for lefts, totals in zip(self.lefts, self.totals, strict=True):
            left = _scaled(counts, lefts, totals // 2, totals)
            counts = np.stack([left, counts - left], axis=-1).reshape(len(turns), -1)
        return counts[:, : self.size]

    def places(self, component: int, turns: np.ndarray) -> np.ndarray:
        """Return which of all turns a component's turns are (both counted from 0): the inverse of `before`."""
        if not turns.size:  # A component of weight zero has no turns.
            return turns
        places, node = turns, component
        for lefts, totals in zip(reversed(self.lefts), reversed(self.totals), strict=True):
            node, is_right = divmod(node, 2)
            left, total = lefts[node : node + 1], totals[node : node + 1]
            if is_right:
                places = _scaled(places, total, total // 2, total - left)
            else:
                places = _scaled(places, total, total - total // 2 - 1, left)
        return places


def _scaled(values: np.ndarray, factor: np.ndarray, plus: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """Return `(values * factor + plus) // divisor` exactly, although the product has up to 100 bits; results up to
    2**50.

    A float's quotient is off by one at most, and its remainder is small, so the low 64 bits determine it.
    """
    near = np.rint(values * (factor / divisor) + plus / divisor).astype(np.int64)
    unsigned = [array.astype(np.uint64) for array in (values, factor, plus, near, divisor)]
    value, scale, more, quotient, by = unsigned
    rest = (value * scale + more - quotient * by).view(np.int64)
    return near + rest // divisor
