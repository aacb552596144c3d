"""The rules of the Grug recipe give its numbers, and our beta2 misses the published sweep by less than the recipe's."""

import doctest

import pytest

from recipes import grug_rules
from recipes.grug_rules import BETA2_BASE_PUBLISHED, adam_learning_rate, adamh_learning_rate, beta2, beta2_error, eps


def test_the_examples_hold() -> None:
    assert doctest.testmod(grug_rules).failed == 0


def test_rates_grow_with_the_batch_and_fall_with_tokens_and_width() -> None:
    base = adam_learning_rate(1e9, 512, 32)
    assert adam_learning_rate(1e9, 512, 128) == pytest.approx(2 * base)
    assert adam_learning_rate(1e10, 512, 32) == pytest.approx(base * 10**-0.2813)
    assert adam_learning_rate(1e9, 1024, 32) == pytest.approx(base * 2**-0.3678)
    assert adamh_learning_rate(1e9, 512, 32) == pytest.approx(base * 13 / 3)
    assert eps(32, 1e9) == pytest.approx(1e-15) and eps(128, 1e9) == pytest.approx(0.5e-15)


def test_our_base_of_beta2_is_nearer_to_the_sweep_than_the_published_one() -> None:
    assert (beta2(32), beta2(64, BETA2_BASE_PUBLISHED), beta2(10_000)) == (0.998, 0.999**2, 0.95)
    ours, theirs = beta2_error(), beta2_error(BETA2_BASE_PUBLISHED)
    assert max(ours.values()) < max(theirs.values())
    assert sum(ours.values()) < 0.65 * sum(theirs.values())
