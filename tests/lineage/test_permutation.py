"""Permutations: exact, invertible, the default mixing, the two old kinds as their reference computes them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage.permutation import SHUFFLES, Permutation, derive_key


@given(st.sampled_from(SHUFFLES), st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_every_kind_is_a_bijection_with_an_inverse(kind: str, size: int, key: int) -> None:
    permutation = Permutation(kind, size, key)
    image = permutation.forward(np.arange(size))
    assert np.array_equal(np.sort(image), np.arange(size))
    assert np.array_equal(permutation.inverse(image), np.arange(size))


@given(st.sampled_from(SHUFFLES), st.integers(2**31, 2**40), st.integers(0, 2**64 - 1), st.data())
@settings(max_examples=40, deadline=None)
def test_sizes_beyond_32_bits_invert_too(kind: str, size: int, key: int, data: st.DataObject) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    permutation = Permutation(kind, size, key)
    image = permutation.forward(indices)
    assert image.min() >= 0 and image.max() < size
    assert np.array_equal(permutation.inverse(image), indices)


def largest_share(kind: str, size: int) -> float:
    """Mean share of the largest residue class modulo 4 over windows of 256 consecutive indices."""
    image = Permutation(kind, size, 12345).forward(np.arange(1 << 18)).reshape(-1, 256) % 4
    return float(np.mean([np.bincount(window, minlength=4).max() / 256 for window in image]))


@pytest.mark.parametrize("size", [1 << 20, 1 << 21, 1_000_000, 531_441])
def test_the_default_mixes_where_the_five_round_feistel_does_not(size: int) -> None:
    assert largest_share("splitmix", size) < 0.30  # a random permutation gives 0.28
    assert largest_share("feistel", size) > 0.35


def test_every_run_of_1024_indices_has_one_parity_under_the_five_round_feistel() -> None:
    image = Permutation("feistel", 1 << 20, 7).forward(np.arange(1 << 16)).reshape(-1, 1024) % 2
    assert (image.min(axis=1) == image.max(axis=1)).all()
    mixed = Permutation("splitmix", 1 << 20, 7).forward(np.arange(1 << 16)).reshape(-1, 1024) % 2
    assert abs(mixed.mean(axis=1) - 0.5).max() < 0.1


def five_round_feistel(x: int, size: int, seed: int) -> int:
    """The reference's permutation, one integer at a time, from its description (research, section 2.4)."""
    right_bits = (size - 1).bit_length() - (size - 1).bit_length() // 2
    mask = (1 << right_bits) - 1
    generator = np.random.Generator(np.random.PCG64(seed))
    keys = [int(key) for key in generator.integers(0, 1 << right_bits, size=5, dtype=np.uint64)]
    while True:
        left, right = x >> right_bits, x & mask
        for key in keys:
            left, right = right, left ^ ((right * 2654435761 + key) & mask)
        x = (left << right_bits) | right
        if x < size:
            return x


def linear(x: int, size: int, seed: int) -> int:
    generator = np.random.Generator(np.random.PCG64(seed))
    while math.gcd(a := int(generator.integers(1, size)), size) != 1:
        pass
    return (a * x + int(generator.integers(0, size))) % size


@given(st.integers(2, 5000), st.integers(0, 2**30 - 1))
@settings(max_examples=40, deadline=None)
def test_the_old_kinds_are_bit_compatible(size: int, seed: int) -> None:
    indices = np.unique(np.linspace(0, size - 1, 50).astype(np.int64))
    for kind, reference in (("feistel", five_round_feistel), ("linear", linear)):
        wanted = [reference(int(x), size, seed) for x in indices]
        assert Permutation(kind, size, seed).forward(indices).tolist() == wanted, kind


def test_the_default_never_changes() -> None:
    assert Permutation("splitmix", 1000, derive_key("pinned", 1)).forward(np.arange(8)).tolist() == [
        308,
        320,
        256,
        738,
        841,
        714,
        189,
        438,
    ]


def test_keys_tell_their_parts_apart() -> None:
    assert derive_key("a", 12) != derive_key("a1", 2)
    assert derive_key("a", 1) != derive_key("a", 2)


@pytest.mark.parametrize(("indices", "message"), [([10], "outside range"), ([-1], "outside range")])
def test_an_index_outside_is_refused(indices: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Permutation("splitmix", 10, 1).forward(np.array(indices))


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'fisher'; allowed: splitmix, feistel, linear, none"):
        Permutation("fisher", 10, 1)
