"""Keyed permutations of `range(n)` with an inverse: random access to a shuffled order, with no buffer to save.

`splitmix` (the default) is a four-round Feistel network whose round function mixes every bit in both directions.
`linear` and `feistel_levanter` are the two kinds of Levanter, bit for bit, so that the 32B history can be replayed.
`feistel_levanter` does not mix: its round function only carries upward, so low bits stay linear, and every run of 1,024
consecutive indices at n = 2**20 maps to one parity (docs/references.md#levanter-permutations;
`tests/lineage/test_permutation.py` shows it). `BlockShuffle` is for storage that prefers long reads.
"""

import hashlib
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lineage.config import from_jsonable
from lineage.order.feistel import Network, Networks, half_bits, multiply_add, splitmix, walk

type ShuffleName = Literal["splitmix", "feistel_levanter", "linear", "none"]
SHUFFLES: tuple[ShuffleName, ...] = ("splitmix", "feistel_levanter", "linear", "none")

SPLITMIX_ROUNDS = 4
FEISTEL_ROUNDS = 5
LEGACY_SEED_BITS = 30
"""Levanter draws the seed of its round keys as an integer below 2**30."""
NETWORKS = ("windows", "last window", "rest", "blocks")
"""Domain of a block shuffle's keys."""


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks of `io_block` sequences come in random order, and the sequences of every `window_blocks` of them in random
    order.

    A stretch of `io_block * window_blocks` sequences reads whole blocks, each once. So reads are long, and to a batch
    much smaller than the window the order is as random as a full shuffle (Levanter's BlockShuffle; its issue 2917 found
    equal losses at windows of one batch, and 99.5 % fewer reads from storage). What remains after the last whole block
    comes last, shuffled by itself.
    """

    io_block: int = 256
    window_blocks: int = 512
    kind: Literal["block"] = "block"

    def __post_init__(self) -> None:
        for name in ("io_block", "window_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"shuffle.{name} is {getattr(self, name)}; it must be at least 1")


type Shuffle = ShuffleName | BlockShuffle


def decode_shuffle(record: object, where: str) -> Shuffle:
    """Return a shuffle as a mixture's file writes it: a name, or the fields of a `BlockShuffle`."""
    if isinstance(record, dict):
        return from_jsonable(BlockShuffle, record, where)
    return from_jsonable(typing.cast(type[ShuffleName], ShuffleName), record, where)


def check_shuffle(shuffle: Shuffle, where: str) -> None:
    """Read a shuffle. Raises: ValueError for a name that is not in SHUFFLES."""
    if not isinstance(shuffle, BlockShuffle) and shuffle not in SHUFFLES:
        raise ValueError(f"{where}shuffle {shuffle!r}; allowed: {', '.join(SHUFFLES)}, or a BlockShuffle")


def derive_key(*parts: object) -> int:
    """Return a 64-bit key from any mix of strings and integers, the same on every machine."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()[:8], "little")


@dataclass(frozen=True)
class Permutation:
    """A permutation of `range(size)`; `forward` and `inverse` take and give int64 arrays."""

    kind: Shuffle
    size: int
    key: int

    def __post_init__(self) -> None:
        check_shuffle(self.kind, "")
        if self.size < 1:
            raise ValueError(f"permutation of {self.size} elements; at least 1 is needed")

    def forward(self, indices: np.ndarray) -> np.ndarray:
        """Return where each index goes. Raises: ValueError for an index outside `range(size)`."""
        return _moved((self,), np.zeros(1, np.int64), indices, inverse=False)

    def inverse(self, indices: np.ndarray) -> np.ndarray:
        """Return where each index comes from: `inverse(forward(x)) == x`."""
        return _moved((self,), np.zeros(1, np.int64), indices, inverse=True)

    def networks(self) -> list[Network]:
        """Return the networks that `_moved` uses: for a block shuffle NETWORKS, by name, else one."""
        if not isinstance(self.kind, BlockShuffle):
            return [Network(self.size, _round_keys(self.kind, self.size, self.key))]
        blocks, rest = divmod(self.size, self.kind.io_block)
        window = self.kind.io_block * self.kind.window_blocks
        sizes = {"windows": window, "last window": (self.size - rest) % window, "rest": rest, "blocks": blocks}
        return [Network(sizes[name], _splitmix_keys(derive_key(self.key, name))) for name in NETWORKS]


def forward_each(permutations: Sequence[Permutation], which: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return `permutations[which[i]].forward(indices[i])` for every i at once: a few hundred indices of each of a few
    permutations cost calls, not arithmetic. Raises: ValueError for permutations of several kinds, and as `forward`
    does.
    """
    if len({permutation.kind for permutation in permutations}) > 1:
        raise ValueError(f"permutations of kinds {', '.join(sorted({str(each.kind) for each in permutations}))}; one is wanted")
    return _moved(permutations, which, indices, inverse=False)


def _moved(permutations: Sequence[Permutation], which: np.ndarray, indices: np.ndarray, *, inverse: bool) -> np.ndarray:
    """`which` is [indices], or [1] if all go through the same permutation."""
    values = np.asarray(indices, dtype=np.int64)
    if not values.size:
        return values
    kind, sizes = permutations[0].kind, np.array([permutation.size for permutation in permutations], np.int64)[which]
    odd = np.flatnonzero((values < 0) | (values >= sizes))
    if odd.size:
        size = np.broadcast_to(sizes, values.shape)[odd[0]]
        raise ValueError(f"index {values[odd[0]]} is outside range({size})")
    if kind == "none":
        return values
    if kind == "linear":
        return _linear(permutations, which, values, inverse=inverse)
    networks = Networks.of([network for permutation in permutations for network in permutation.networks()])
    if isinstance(kind, BlockShuffle):
        return _block_shuffled(values, np.broadcast_to(which, values.shape), kind, sizes, networks, inverse=inverse)
    return walk(values, networks.take(which), splitmix if kind == "splitmix" else multiply_add, inverse=inverse)


def _linear(permutations: Sequence[Permutation], which: np.ndarray, values: np.ndarray, *, inverse: bool) -> np.ndarray:
    """`a x + b mod n` with gcd(a, n) = 1."""
    out = np.zeros_like(values)
    for number, (size, key) in enumerate((permutation.size, permutation.key) for permutation in permutations):
        here = np.flatnonzero(np.broadcast_to(which == number, values.shape))
        if size == 1:
            continue
        generator = np.random.Generator(np.random.PCG64(key % (1 << LEGACY_SEED_BITS)))
        a = int(generator.integers(1, size))
        while math.gcd(a, size) != 1:
            a = int(generator.integers(1, size))
        b = int(generator.integers(0, size))
        if inverse:
            out[here] = _times((values[here] - b) % size, pow(a, -1, size), size)
        else:
            out[here] = (_times(values[here], a, size) + b) % size
    return out


def _times(values: np.ndarray, factor: int, size: int) -> np.ndarray:
    """Return `values * factor mod size` for values and factor below `size` < 2**62, a few bits of the factor at a time,
    because the product of two numbers of more than 32 bits does not fit into 64. (Levanter overflows there, or rounds
    under numpy 2.)
    """
    bits = 63 - size.bit_length()
    total = np.zeros_like(values)
    for shift in range((factor.bit_length() - 1) // bits * bits, -1, -bits):
        total = ((total << bits) % size + values * ((factor >> shift) & ((1 << bits) - 1)) % size) % size
    return total


def _block_shuffled(
    values: np.ndarray, which: np.ndarray, shuffle: BlockShuffle, sizes: np.ndarray, networks: Networks, *, inverse: bool
) -> np.ndarray:
    whole = np.broadcast_to(sizes - sizes % shuffle.io_block, values.shape)
    out = values.copy() if inverse else _within_windows(values, which, shuffle, whole, networks, inverse=False)
    here = np.flatnonzero(out < whole)
    numbers, places = np.divmod(out[here], shuffle.io_block)
    of_blocks = networks.take(len(NETWORKS) * which[here] + NETWORKS.index("blocks"))
    out[here] = walk(numbers, of_blocks, splitmix, inverse=inverse) * shuffle.io_block + places
    return _within_windows(out, which, shuffle, whole, networks, inverse=True) if inverse else out


def _within_windows(
    values: np.ndarray, which: np.ndarray, shuffle: BlockShuffle, whole: np.ndarray, networks: Networks, *, inverse: bool
) -> np.ndarray:
    """Permute every window by itself. Each full window has keys of its own; the shorter last window and the rest after
    `whole` have networks of their own.
    """
    window = shuffle.io_block * shuffle.window_blocks
    full = whole - whole % window
    is_full, is_rest = values < full, values >= whole
    starts = np.where(is_full, values - values % window, np.where(is_rest, whole, full))
    name = np.where(
        is_full, NETWORKS.index("windows"), np.where(is_rest, NETWORKS.index("rest"), NETWORKS.index("last window"))
    )
    mine = networks.take(len(NETWORKS) * which + name)
    numbers = (starts[is_full] // window).astype(np.uint64)
    for keys in mine.keys:
        keys[is_full] = splitmix(numbers, keys[is_full])
    return starts + walk(values - starts, mine, splitmix, inverse=inverse)


def _round_keys(kind: ShuffleName, size: int, key: int) -> np.ndarray:
    if kind == "splitmix":
        return _splitmix_keys(key)
    generator = np.random.Generator(np.random.PCG64(key % (1 << LEGACY_SEED_BITS)))
    return generator.integers(0, 1 << half_bits(size), size=FEISTEL_ROUNDS, dtype=np.uint64)


def _splitmix_keys(key: int) -> np.ndarray:
    return np.array([derive_key(key, "round", r) for r in range(SPLITMIX_ROUNDS)], dtype=np.uint64)
