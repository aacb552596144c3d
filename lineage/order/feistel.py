"""Feistel networks that permute `range(n)`, for many values at once, through one network or each value through its own.

A network permutes a power of two. A value that leaves the range is sent through again until it returns (cycle walking).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

MULTIPLIER = np.uint64(2654435761)
type Mix = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(half of a value, round key) -> what the other half is XORed with; all uint64."""


def half_bits(size: int) -> int:
    """Return the bits of one half of the network for `range(size)`."""
    bits = max(2, (size - 1).bit_length())
    return bits - bits // 2


class Network(NamedTuple):
    """A Feistel network that permutes `range(size)`."""

    size: int
    keys: np.ndarray
    """uint64 [rounds]."""


class Networks(NamedTuple):
    """The networks of many values, uint64: columns [values], or [1] if all go through one."""

    sizes: np.ndarray
    shifts: np.ndarray
    """Bits of a half."""
    masks: np.ndarray
    keys: np.ndarray
    """[rounds, values]."""

    @staticmethod
    def of(networks: Sequence[Network]) -> "Networks":
        shifts = np.array([half_bits(network.size) for network in networks], np.uint64)
        sizes = np.array([network.size for network in networks], np.uint64)
        return Networks(
            sizes, shifts, (np.uint64(1) << shifts) - np.uint64(1), np.stack([each.keys for each in networks], axis=1)
        )

    def take(self, which: np.ndarray) -> "Networks":
        return Networks(self.sizes[which], self.shifts[which], self.masks[which], self.keys[:, which])


def walk(values: np.ndarray, networks: Networks, mix: Mix, *, inverse: bool) -> np.ndarray:
    """Return where each value goes, or where it comes from; int64 like `values`."""
    step = _feistel_inverse if inverse else _feistel
    out = step(values.astype(np.uint64), networks, mix)
    outside = np.flatnonzero(out >= networks.sizes)
    while outside.size:
        there = networks if networks.sizes.size == 1 else networks.take(outside)
        out[outside] = moved = step(out[outside], there, mix)
        outside = outside[moved >= there.sizes]
    return out.astype(np.int64)


def _feistel(values: np.ndarray, networks: Networks, mix: Mix) -> np.ndarray:
    left, right = values >> networks.shifts, values & networks.masks
    for key in networks.keys:
        left, right = right, left ^ (mix(right, key) & networks.masks)
    return (left << networks.shifts) | right


def _feistel_inverse(values: np.ndarray, networks: Networks, mix: Mix) -> np.ndarray:
    left, right = values >> networks.shifts, values & networks.masks
    for key in networks.keys[::-1]:
        left, right = right ^ (mix(left, key) & networks.masks), left
    return (left << networks.shifts) | right


def splitmix(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    mixed = values + key
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def multiply_add(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Apply the mixing step of Marin's permutation: it only carries upward."""
    return values * MULTIPLIER + key
