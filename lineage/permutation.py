"""Keyed permutations of `range(n)` that can be inverted: random access to a shuffled order, with no buffer to save.

`splitmix` (the default) is a four-round Feistel network whose round function mixes every bit both ways; `linear` and
`feistel` are the two kinds of the reference documents, kept so that the 32B history can be replayed. `feistel` does not mix:
its round function only carries upward, so low bits stay linear, and every run of 1,024 consecutive indices at n = 2**20
maps to one parity (research/training_levanter_haliax_grug.md, section 2.4; `tests/lineage/test_permutation.py` shows it).
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

type Shuffle = Literal["splitmix", "feistel", "linear", "none"]
SHUFFLES: tuple[Shuffle, ...] = ("splitmix", "feistel", "linear", "none")

SPLITMIX_ROUNDS = 4
FEISTEL_ROUNDS = 5
FEISTEL_MULTIPLIER = np.uint64(2654435761)
LEGACY_SEED_BITS = 30
"""The reference draws the seed of its round keys as an integer below 2**30."""


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
        if self.kind not in SHUFFLES:
            raise ValueError(f"shuffle {self.kind!r}; allowed: {', '.join(SHUFFLES)}")
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
        if self.kind == "linear":
            return self._linear(values, inverse=inverse)
        return self._walk(values.astype(np.uint64), inverse=inverse).astype(np.int64)

    def _linear(self, values: np.ndarray, *, inverse: bool) -> np.ndarray:
        """`a x + b mod n` with gcd(a, n) = 1, in Python integers: the product overflows 64 bits beyond n = 2**32."""
        generator = np.random.Generator(np.random.PCG64(self.key % (1 << LEGACY_SEED_BITS)))
        a = int(generator.integers(1, self.size))
        while math.gcd(a, self.size) != 1:
            a = int(generator.integers(1, self.size))
        b = int(generator.integers(0, self.size))
        if inverse:
            a_inverse = pow(a, -1, self.size)
            return np.array([(int(v) - b) * a_inverse % self.size for v in values.ravel()], np.int64).reshape(values.shape)
        return np.array([(a * int(v) + b) % self.size for v in values.ravel()], np.int64).reshape(values.shape)

    def _walk(self, values: np.ndarray, *, inverse: bool) -> np.ndarray:
        """Cycle walking: the network permutes a power of two; a value that leaves `range(size)` is sent on until it returns."""
        half_bits = self._half_bits()
        keys = self._round_keys(half_bits)
        step = _feistel_inverse if inverse else _feistel
        mix = _splitmix if self.kind == "splitmix" else _multiply_add
        out = step(values, keys, half_bits, mix)
        outside = out >= self.size
        while outside.any():
            out[outside] = step(out[outside], keys, half_bits, mix)
            outside = out >= self.size
        return out

    def _half_bits(self) -> int:
        bits = max(2, (self.size - 1).bit_length())
        return bits - bits // 2

    def _round_keys(self, half_bits: int) -> np.ndarray:
        if self.kind == "splitmix":
            return np.array([derive_key(self.key, "round", r) for r in range(SPLITMIX_ROUNDS)], dtype=np.uint64)
        generator = np.random.Generator(np.random.PCG64(self.key % (1 << LEGACY_SEED_BITS)))
        return generator.integers(0, 1 << half_bits, size=FEISTEL_ROUNDS, dtype=np.uint64)


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
