"""Permutations: exact, invertible; the default mixing, and two old kinds equal to their references."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.permutation import SHUFFLES, BlockShuffle, Permutation, Shuffle, derive_key, forward_each

BLOCKS = st.builds(BlockShuffle, st.integers(1, 40), st.integers(1, 9))


@given(st.sampled_from(SHUFFLES) | BLOCKS, st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_kind_is_a_bijection_with_an_inverse(kind: Shuffle, size: int, key: int) -> None:
    permutation = Permutation(kind, size, key)
    image = permutation.forward(np.arange(size))
    assert np.array_equal(np.sort(image), np.arange(size))
    assert np.array_equal(permutation.inverse(image), np.arange(size))


@given(st.sampled_from(SHUFFLES) | BLOCKS, st.integers(2**31, 2**40), st.integers(0, 2**64 - 1), st.data())
def test_sizes_beyond_32_bits_invert_too(kind: Shuffle, size: int, key: int, data: st.DataObject) -> None:
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
    assert largest_share("feistel_levanter", size) > 0.35


def test_every_run_of_1024_indices_has_one_parity_under_the_five_round_feistel() -> None:
    image = Permutation("feistel_levanter", 1 << 20, 7).forward(np.arange(1 << 16)).reshape(-1, 1024) % 2
    assert (image.min(axis=1) == image.max(axis=1)).all()
    mixed = Permutation("splitmix", 1 << 20, 7).forward(np.arange(1 << 16)).reshape(-1, 1024) % 2
    assert abs(mixed.mean(axis=1) - 0.5).max() < 0.1


def five_round_feistel(x: int, size: int, seed: int) -> int:
    """The reference's permutation, one integer at a time, from its description (docs/references.md#levanter-permutations)."""
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
def test_the_old_kinds_are_bit_compatible(size: int, seed: int) -> None:
    indices = np.unique(np.linspace(0, size - 1, 50).astype(np.int64))
    for kind, reference in (("feistel_levanter", five_round_feistel), ("linear", linear)):
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


def splitmix_feistel(x: int, size: int, keys: list[int]) -> int:
    """Four rounds over halves of the bits, mixed by the finalizer of splitmix64, walked back into the range."""
    bits = max(2, (size - 1).bit_length())
    half = bits - bits // 2
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ (finalized(right + key) & ((1 << half) - 1))
        x = (left << half) | right
        if x < size:
            return x


def finalized(z: int) -> int:
    z %= 1 << 64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % (1 << 64)
    return z ^ (z >> 31)


def rounds(*parts: object) -> list[int]:
    return [derive_key(derive_key(*parts), "round", r) for r in range(4)]


def blocks_one_by_one(x: int, shuffle: BlockShuffle, size: int, key: int) -> int:
    """Within its window, the shorter last one or what is left over; then its block."""
    io, window = shuffle.io_block, shuffle.io_block * shuffle.window_blocks
    whole = size - size % io
    full = whole - whole % window
    if x < full:
        number, place = divmod(x, window)
        x = number * window + splitmix_feistel(place, window, [finalized(number + k) for k in rounds(key, "windows")])
    elif x < whole:
        x = full + splitmix_feistel(x - full, whole - full, rounds(key, "last window"))
    else:
        return whole + splitmix_feistel(x - whole, size - whole, rounds(key, "rest"))
    block, place = divmod(x, io)
    return splitmix_feistel(block, whole // io, rounds(key, "blocks")) * io + place


def one_by_one(kind: Shuffle, size: int, key: int, x: int) -> int:
    if isinstance(kind, BlockShuffle):
        return blocks_one_by_one(x, kind, size, key)
    if kind == "none" or size == 1:
        return x
    if kind == "splitmix":
        return splitmix_feistel(x, size, [derive_key(key, "round", r) for r in range(4)])
    return (five_round_feistel if kind == "feistel_levanter" else linear)(x, size, key % (1 << 30))


@given(
    st.sampled_from(SHUFFLES) | BLOCKS,
    st.lists(st.tuples(st.integers(1, 3000) | st.integers(2**31, 2**40), st.integers(0, 2**64 - 1)), min_size=1, max_size=4),
    st.data(),
)
def test_many_permutations_at_once_are_each_by_itself(kind: Shuffle, drawn: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against integers, one at a time; a permutation may have no index, or all of them."""
    which = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=30))
    indices = [data.draw(st.integers(0, drawn[number][0] - 1)) for number in which]
    wanted = [one_by_one(kind, *drawn[number], x) for number, x in zip(which, indices, strict=True)]
    permutations = [Permutation(kind, size, key) for size, key in drawn]
    assert forward_each(permutations, np.array(which, np.int64), np.array(indices, np.int64)).tolist() == wanted
    alone = [permutations[number].forward(np.array([x])).item() for number, x in zip(which, indices, strict=True)]
    assert alone == wanted


def test_many_permutations_are_of_one_kind_and_an_index_outside_its_own_is_refused() -> None:
    two = [Permutation("splitmix", 10, 1), Permutation("none", 20, 1)]
    with pytest.raises(ValueError, match="permutations of kinds none, splitmix; one is wanted"):
        forward_each(two, np.array([0, 1]), np.array([3, 3]))
    with pytest.raises(ValueError, match=r"index 15 is outside range\(10\)"):
        forward_each([two[0], Permutation("splitmix", 20, 2)], np.array([1, 0]), np.array([15, 15]))


LEVANTER = [
    ("feistel_levanter", 31327077, 2, [1, 0, 1, 0, 0]),
    ("feistel_levanter", 31327077, 1000, [908, 612, 46, 185, 393]),
    ("feistel_levanter", 31327077, 531441, [435591, 242149, 113129, 54238, 499509]),
    ("feistel_levanter", 752193311, 1048576, [34071, 749649, 458422, 558871, 364384]),
    ("feistel_levanter", 752193311, 2147483659, [379854084, 278368126, 1089048758, 1071442681, 429269513]),
    ("linear", 31327077, 1000, [462, 745, 701, 962, 179]),
    ("linear", 752193311, 1048576, [514635, 395756, 204736, 1038923, 633514]),
]
"""What `levanter.data._prp` of marin-levanter 0.2.227.dev40316220070 gave on 2026-11-22 at 0, 1, n // 3, n // 2 and n - 1. The
seeds are its `randint(PRNGKey(k), (), 0, 2**30)` for k = 0 and 7. Its `linear` multiplies an int64 scalar with a uint64 array,
in float64 since numpy 2: from n = 2**27 or so it rounds and is no permutation (of 2**29 sequences 81 % are never read),
so only smaller sizes are compared."""


@pytest.mark.parametrize(("kind", "seed", "size", "wanted"), LEVANTER)
def test_the_old_kinds_give_what_levanter_gives(kind: Shuffle, seed: int, size: int, wanted: list[int]) -> None:
    indices = np.array([0, 1, size // 3, size // 2, size - 1])
    assert Permutation(kind, size, seed).forward(indices).tolist() == wanted


def slow_block_shuffle(shuffle: BlockShuffle, size: int, key: int) -> list[int]:
    """The sequence read at every place, window by window, from the permutations of blocks and windows alone."""
    image, io = Permutation(shuffle, size, key).forward(np.arange(size)).tolist(), shuffle.io_block
    whole, window = size - size % io, io * shuffle.window_blocks
    blocks = Permutation("splitmix", max(1, whole // io), derive_key(key, "blocks")).forward(np.arange(max(1, whole // io)))
    for start in range(0, whole, window):
        read = [block * io + i for block in blocks[start // io : min(start + window, whole) // io].tolist() for i in range(io)]
        assert sorted(image[start : min(start + window, whole)]) == sorted(read), "a window reads its blocks, each once"
    assert sorted(image[whole:]) == list(range(whole, size)), "what is left over comes last"
    return image


@given(BLOCKS, st.integers(1, 2000), st.integers(0, 2**64 - 1))
def test_a_window_of_a_block_shuffle_reads_whole_blocks(shuffle: BlockShuffle, size: int, key: int) -> None:
    assert len(slow_block_shuffle(shuffle, size, key)) == size


def test_windows_of_a_block_shuffle_have_orders_of_their_own_that_mix() -> None:
    image = Permutation(BlockShuffle(64, 64), 1 << 16, 5).forward(np.arange(1 << 16))
    blocks = Permutation("splitmix", 1 << 10, derive_key(5, "blocks")).inverse(image >> 6)
    places = (blocks % 64 * 64 + image % 64).reshape(16, -1)  # within the window
    assert len({tuple(row[:20].tolist()) for row in places}) == 16
    shares = [np.bincount(row, minlength=64).max() / 256 for row in (places >> 6).reshape(-1, 256)]
    assert np.mean(shares) < 0.05  # of 256 draws over 64 blocks the fullest takes .042 by chance


@pytest.mark.parametrize(("indices", "message"), [([10], "outside range"), ([-1], "outside range")])
def test_an_index_outside_is_refused(indices: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Permutation("splitmix", 10, 1).forward(np.array(indices))


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'fisher'; allowed: splitmix, feistel_levanter, linear, none, or a BlockShuffle"):
        Permutation("fisher", 10, 1)


@pytest.mark.parametrize("field", ["io_block", "window_blocks"])
def test_a_block_shuffle_without_blocks_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"shuffle.{field} is 0; it must be at least 1"):
        BlockShuffle(**{field: 0})
