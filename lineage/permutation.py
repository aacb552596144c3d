"""Keyed permutations of `range(n)` that can be inverted: random access to a shuffled order, with no buffer to save.

`splitmix` (the default) is a four-round Feistel network whose round function mixes every bit both ways. `linear` and
`feistel_levanter` are the two kinds of the reference documents, bit for bit, so that the 32B history can be replayed.
`feistel_levanter` does not mix: its round function only carries upward, so low bits stay linear, and every run of 1,024
consecutive indices at n = 2**20 maps to one parity (research/training_levanter_haliax_grug.md, section 2.4;
`tests/lineage/test_permutation.py` shows it). `BlockShuffle` is for storage that wants long reads.
"""

import hashlib
import math
import typing
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lineage.config import from_jsonable

type ShuffleName = Literal["splitmix", "feistel_levanter", "linear", "none"]
SHUFFLES: tuple[ShuffleName, ...] = ("splitmix", "feistel_levanter", "linear", "none")

SPLITMIX_ROUNDS = 4
FEISTEL_ROUNDS = 5
FEISTEL_MULTIPLIER = np.uint64(2654435761)
LEGACY_SEED_BITS = 30
"""The reference draws the seed of its round keys as an integer below 2**30."""


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks of `io_block` sequences come in random order, and the sequences of every `window_blocks` of them in random order.

    A stretch of `io_block * window_blocks` sequences reads whole blocks, each once: long reads where the storage wants them,
    and as random as a full shuffle to a batch much smaller than the window (Levanter's BlockShuffle; its issue 2917 found
    equal losses at windows of a batch, and reads from storage down by 99.5 %). What is left over after the last whole block
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
    """A shuffle as a mixture's file has it: a name, or the fields of a `BlockShuffle`."""
    if isinstance(record, dict):
        return from_jsonable(BlockShuffle, record, where)
    return from_jsonable(typing.cast(type[ShuffleName], ShuffleName), record, where)


def check_shuffle(shuffle: Shuffle, where: str) -> None:
    """Raises: ValueError for a name that is none of SHUFFLES."""
    if not isinstance(shuffle, BlockShuffle) and shuffle not in SHUFFLES:
        raise ValueError(f"{where}shuffle {shuffle!r}; allowed: {', '.join(SHUFFLES)}, or a BlockShuffle")


def derive_key(*parts: object) -> int:
    """A 64-bit key from any mix of strings and integers, the same on every machine."""
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
        """Where each index goes. Raises ValueError for an index outside `range(size)`."""
        return self._apply(indices, inverse=False)

    def inverse(self, indices: np.ndarray) -> np.ndarray:
        """Where each index comes from: `inverse(forward(x)) == x`."""
        return self._apply(indices, inverse=True)

    def _apply(self, indices: np.ndarray, *, inverse: bool) -> np.ndarray:
        values = np.asarray(indices, dtype=np.int64)
        if values.size and (int(values.min()) < 0 or int(values.max()) >= self.size):
            raise ValueError(f"indices {int(values.min())} to {int(values.max())} are outside range({self.size})")
        if self.kind == "none" or self.size == 1:
            return values
        if isinstance(self.kind, BlockShuffle):
            return _block_shuffled(values, self.kind, self.size, self.key, inverse=inverse)
        if self.kind == "linear":
            return self._linear(values, inverse=inverse)
        mix = _splitmix if self.kind == "splitmix" else _multiply_add
        keys = self._round_keys(_half_bits(self.size))
        return _walk(values.astype(np.uint64), self.size, keys, mix, inverse=inverse).astype(np.int64)

    def _linear(self, values: np.ndarray, *, inverse: bool) -> np.ndarray:
        """`a x + b mod n` with gcd(a, n) = 1."""
        generator = np.random.Generator(np.random.PCG64(self.key % (1 << LEGACY_SEED_BITS)))
        a = int(generator.integers(1, self.size))
        while math.gcd(a, self.size) != 1:
            a = int(generator.integers(1, self.size))
        b = int(generator.integers(0, self.size))
        if inverse:
            return _times((values - b) % self.size, pow(a, -1, self.size), self.size)
        return (_times(values, a, self.size) + b) % self.size

    def _round_keys(self, half_bits: int) -> np.ndarray:
        if self.kind == "splitmix":
            return _splitmix_keys(self.key)
        generator = np.random.Generator(np.random.PCG64(self.key % (1 << LEGACY_SEED_BITS)))
        return generator.integers(0, 1 << half_bits, size=FEISTEL_ROUNDS, dtype=np.uint64)


def _times(values: np.ndarray, factor: int, size: int) -> np.ndarray:
    """`values * factor mod size` for values and factor below `size` < 2**62, a few bits of the factor at a time: the product
    of two numbers of 32 bits and more does not fit 64. (Levanter wraps there, or rounds under numpy 2.)"""
    bits = 63 - size.bit_length()
    total = np.zeros_like(values)
    for shift in range((factor.bit_length() - 1) // bits * bits, -1, -bits):
        total = ((total << bits) % size + values * ((factor >> shift) & ((1 << bits) - 1)) % size) % size
    return total


def _block_shuffled(values: np.ndarray, shuffle: BlockShuffle, size: int, key: int, *, inverse: bool) -> np.ndarray:
    blocks = size // shuffle.io_block
    whole = blocks * shuffle.io_block
    out = values.copy()
    if not inverse:
        out = _within_windows(out, shuffle, size, key, inverse=False)
    here = out < whole
    if blocks:
        numbers, rests = np.divmod(out[here], shuffle.io_block)
        order = Permutation("splitmix", blocks, derive_key(key, "blocks"))
        moved = order.inverse(numbers) if inverse else order.forward(numbers)
        out[here] = moved * shuffle.io_block + rests
    return _within_windows(out, shuffle, size, key, inverse=True) if inverse else out


def _within_windows(values: np.ndarray, shuffle: BlockShuffle, size: int, key: int, *, inverse: bool) -> np.ndarray:
    """Every window permuted in itself: those of full length all at once, then the shorter last one, then the rest."""
    whole = size - size % shuffle.io_block
    window = shuffle.io_block * shuffle.window_blocks
    full = whole - whole % window
    out = values.copy()
    keys = _splitmix_keys(derive_key(key, "windows"))
    here = values < full
    numbers, places = np.divmod(values[here], window)
    of_each = np.stack([_splitmix(numbers.astype(np.uint64), round_key) for round_key in keys])
    moved = _walk(places.astype(np.uint64), window, of_each, _splitmix, inverse=inverse)
    out[here] = numbers * window + moved.astype(np.int64)
    for name, start, end in (("last window", full, whole), ("rest", whole, size)):
        here = (values >= start) & (values < end)
        if here.any():
            alone = Permutation("splitmix", end - start, derive_key(key, name))
            out[here] = start + (alone.inverse if inverse else alone.forward)(values[here] - start)
    return out


def _splitmix_keys(key: int) -> np.ndarray:
    return np.array([derive_key(key, "round", r) for r in range(SPLITMIX_ROUNDS)], dtype=np.uint64)


def _half_bits(size: int) -> int:
    bits = max(2, (size - 1).bit_length())
    return bits - bits // 2


def _walk(values: np.ndarray, size: int, keys: np.ndarray, mix, *, inverse: bool) -> np.ndarray:
    """Cycle walking: the network permutes a power of two; a value that leaves `range(size)` is sent on until it returns.

    `keys` are [rounds], or [rounds, values] where each value has its own.
    """
    half_bits = _half_bits(size)
    step = _feistel_inverse if inverse else _feistel
    out = step(values, keys, half_bits, mix)
    outside = out >= size
    while outside.any():
        out[outside] = step(out[outside], keys if keys.ndim == 1 else keys[:, outside], half_bits, mix)
        outside = out >= size
    return out


def _feistel(values: np.ndarray, keys: np.ndarray, half_bits: int, mix) -> np.ndarray:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (mix(right, key) & mask)
    return (left << shift) | right


def _feistel_inverse(values: np.ndarray, keys: np.ndarray, half_bits: int, mix) -> np.ndarray:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys[::-1]:
        left, right = right ^ (mix(left, key) & mask), left
    return (left << shift) | right


def _splitmix(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    mixed = values + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _multiply_add(values: np.ndarray, key: np.uint64) -> np.ndarray:
    return values * FEISTEL_MULTIPLIER + key
