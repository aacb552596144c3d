"""The contrast that the Bison page judges: what leaked items and controls share is no effect of the leak."""

import numpy as np
import pytest

from scenarios.surprisal import Estimate, Surprisal, contrast, paired_difference

ITEMS, BYTES = 200, 50.0
LEAKED = np.arange(ITEMS) < ITEMS // 2
NOISE = np.random.default_rng(3).normal(0, 0.02, ITEMS)


def scored(bits_per_byte: np.ndarray, num_bytes: np.ndarray | float = BYTES) -> Surprisal:
    sizes = np.full(ITEMS, num_bytes) if isinstance(num_bytes, float) else num_bytes
    return Surprisal(bits_per_byte * sizes, sizes, {}, {}, 0)


def leak(one: np.ndarray, other: np.ndarray, num_bytes: np.ndarray | float = BYTES, leaked: np.ndarray = LEAKED) -> Estimate:
    return contrast(scored(one, num_bytes), scored(other, num_bytes), leaked, ~leaked)


def holds(estimate: Estimate, value: float) -> bool:
    return estimate.low <= value <= estimate.high and estimate.high - estimate.low < 0.1


def test_a_form_that_the_model_learned_helps_both_groups_and_is_no_leak() -> None:
    """The difference of leaked items alone says that it leaked."""
    one, other = np.full(ITEMS, 1.0) + NOISE, np.full(ITEMS, 1.5)
    assert paired_difference(scored(one), scored(other), LEAKED).high < -0.4
    assert holds(leak(one, other), 0.0)


def test_a_leak_beside_a_learned_form_is_only_what_leaked_items_gain_more() -> None:
    one = 1.0 - 0.25 * LEAKED + NOISE
    assert holds(leak(one, np.full(ITEMS, 1.5)), -0.25)


def test_leaked_items_that_are_easier_for_both_models_are_no_leak() -> None:
    easy = 1.5 - 0.8 * LEAKED
    assert holds(leak(easy + NOISE, easy), 0.0)


def test_leaked_items_that_are_longer_are_no_leak() -> None:
    """Every byte gains the same; items of a group weigh by their bytes."""
    sizes = np.where(LEAKED, 400.0, 20.0)
    assert holds(leak(np.full(ITEMS, 1.2) + NOISE, np.full(ITEMS, 1.5), sizes), 0.0)


def test_the_model_in_the_other_place_has_the_other_sign() -> None:
    one, other = 1.0 - 0.25 * LEAKED + NOISE, np.full(ITEMS, 1.5)
    there, back = leak(one, other), leak(other, one)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))


def test_one_item_that_leaked_hard_is_not_shown_as_a_leak_of_all() -> None:
    one = np.full(ITEMS, 1.5)
    one[0] -= 1.4
    assert leak(one, np.full(ITEMS, 1.5)).high == 0


@pytest.mark.parametrize("leaked", [np.ones(ITEMS, bool), np.zeros(ITEMS, bool)], ids=["no control", "no leaked item"])
def test_without_one_of_the_groups_there_is_no_contrast(leaked: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a contrast needs both"):
        leak(np.full(ITEMS, 1.0), np.full(ITEMS, 1.5), leaked=leaked)
