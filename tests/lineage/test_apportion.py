"""Shares of mixture components in closed form: equal to a step-by-step walk, monotone, near the weights, invertible."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.apportion import WEIGHT_BITS, OrderPhase, Split, shares_of

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1.0)), min_size=1, max_size=9).filter(any)


def normalized(raw: list[float]) -> np.ndarray:
    return np.array(raw) / sum(raw)


def walked(weights: np.ndarray, turns: int) -> list[int]:
    """The component of each turn, one after another: every node of halves counts its own turns and the left half's."""
    whole = [max(1, round(float(weight) * 2**WEIGHT_BITS)) if weight > 0 else 0 for weight in weights]
    whole += [0] * ((1 << (len(whole) - 1).bit_length()) - len(whole))
    taken: dict[tuple[int, int], tuple[int, int]] = {}

    def next_of(low: int, high: int) -> int:
        if high - low == 1:
            return low
        middle, total = (low + high) // 2, sum(whole[low:high])
        mine, lefts = taken.get((low, high), (0, 0))
        wanted = ((mine + 1) * sum(whole[low:middle]) + total // 2) // total
        assert wanted - lefts in (0, 1)
        taken[low, high] = mine + 1, wanted
        return next_of(low, middle) if wanted > lefts else next_of(middle, high)

    return [next_of(0, len(whole)) for _ in range(turns)]


@given(WEIGHTS, st.integers(1, 200))
def test_the_closed_form_is_the_walk_and_its_inverse(raw: list[float], turns: int) -> None:
    weights = normalized(raw)
    split, components = Split.of(weights), np.array(walked(weights, turns))
    counts = split.before(np.arange(turns + 1))
    for component in range(len(raw)):
        is_mine = components == component
        assert counts[:, component].tolist() == [0, *np.cumsum(is_mine).tolist()]
        assert split.places(component, np.arange(is_mine.sum())).tolist() == np.flatnonzero(is_mine).tolist()


@given(WEIGHTS, st.lists(st.integers(0, (1 << 50) - 1), min_size=1, max_size=20))
def test_far_away_turns_are_exact_too(raw: list[float], turns: list[int]) -> None:
    """Against Python's whole numbers, up to where they are allowed."""
    weights = normalized(raw)
    split = Split.of(weights)
    at = np.array(turns, np.int64)
    counts, after = split.before(at), split.before(at + 1)
    assert (counts.sum(axis=1) == at).all()
    grown = after - counts
    assert grown.min() >= 0 and (grown.sum(axis=1) == 1).all()
    for row, turn in enumerate(turns):
        component = int(np.argmax(grown[row]))
        assert split.places(component, counts[row, component : component + 1]).tolist() == [turn]
        exact = [turn * (max(1, round(float(w) * 2**WEIGHT_BITS)) if w > 0 else 0) for w in weights]
        total = sum(exact) // turn if turn else 1
        assert all(abs(int(c) * total - e) <= 2 * total for c, e in zip(counts[row], exact, strict=True))


def test_tiny_weights_are_sampled_and_those_of_zero_never() -> None:
    counts = Split.of(np.array([0.5, 0.4999, 0.0, 1e-4])).before(np.array([20_000]))[0]
    assert counts[2] == 0 and counts[3] == 2


@given(st.lists(WEIGHTS, min_size=1, max_size=3), st.integers(1, 40), st.sampled_from(["carried", "split"]))
def test_shares_of_both_kinds_agree_with_their_own_inverse_over_phases(raws: list[list[float]], block: int, kind) -> None:
    size = max(len(raw) for raw in raws)
    phases = [
        OrderPhase(start, normalized([*raw, *([0.0] * (size - len(raw)))]))
        for start, raw in zip((0, 3, 11), raws, strict=False)
    ]
    shares = shares_of(kind, phases, block)
    before = shares.before(np.arange(41))
    assert (before.sum(axis=1) == np.arange(41) * block).all()
    assert (np.diff(before, axis=0) >= 0).all()
    assert (shares_of(kind, phases, block).before(np.array([40, 7])) == before[[40, 7]]).all(), "a late block first"
    for component in range(size):
        blocks = np.repeat(np.arange(40), np.diff(before[:, component]))
        assert shares.blocks_of(component, np.arange(blocks.size)).tolist() == blocks.tolist()
    for phase, (first, end) in zip(phases, pairwise([*(phase.start_block for phase in phases), 41]), strict=False):
        gone = before[end - 1] - before[first]
        assert np.abs(gone - phase.weights * gone.sum()).max() <= 2.5


def test_what_no_exact_share_is_known_of_is_refused() -> None:
    with pytest.raises(ValueError, match=r"beyond 2\*\*50"):
        Split.of(np.array([0.5, 0.5])).before(np.array([1 << 51]))
