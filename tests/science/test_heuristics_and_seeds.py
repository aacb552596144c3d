"""Published rules give the published numbers; the two terms of seed noise are told apart."""

import doctest

import numpy as np
import pytest

from science import heuristics
from science.heuristics import MOE_BETA2_BASE_PUBLISHED, moe_adamh_learning_rate, moe_beta2, moe_learning_rate
from science.laws.power import fit_pinned
from science.published import BATCH_LAWS, BETA_SWEEPS, half_life_tokens
from science.seeds import seed_variance


def test_published_rules_give_published_numbers() -> None:
    assert [heuristics.layers(width) for width in (512, 1024, 2048)] == [6, 11, 21]
    assert heuristics.critical_batch(1e22) == pytest.approx(6425, rel=0.01)
    assert heuristics.critical_batch(1e23) == pytest.approx(15_698, rel=0.01)
    assert heuristics.dense_learning_rate(64, 512) == pytest.approx(0.33 * 8 / 512)
    assert doctest.testmod(heuristics).failed == 0
    assert heuristics.moe_batch(1e9) == 32 and heuristics.dense_batch(2**16 * 4096 * 100, 4096) == 128


def test_rates_of_experts_grow_with_the_batch_and_fall_with_tokens_and_width() -> None:
    base = moe_learning_rate(1e9, 512, 32)
    assert moe_learning_rate(1e9, 512, 128) == pytest.approx(2 * base)
    assert moe_learning_rate(1e10, 512, 32) == pytest.approx(base * 10**-0.2813)
    assert moe_learning_rate(1e9, 1024, 32) == pytest.approx(base * 2**-0.3678)
    assert moe_adamh_learning_rate(1e9, 512, 32) == pytest.approx(base * 13 / 3)
    assert heuristics.moe_eps(32, 1e9) == pytest.approx(1e-15) and heuristics.moe_eps(128, 1e9) == pytest.approx(0.5e-15)


def test_our_base_of_beta2_is_nearer_to_both_published_sweeps_than_the_recipes() -> None:
    assert (moe_beta2(32), moe_beta2(64, MOE_BETA2_BASE_PUBLISHED), moe_beta2(10_000)) == (0.998, 0.999**2, 0.95)
    for sweep in BETA_SWEEPS:
        ours, theirs = (heuristics.beta2_error(base, sweep) for base in (0.998, MOE_BETA2_BASE_PUBLISHED))
        assert max(ours.values()) < max(theirs.values())
        assert sum(ours.values()) < 0.65 * sum(theirs.values())


def test_the_dense_rule_keeps_beta2s_half_life_in_tokens() -> None:
    lives = [half_life_tokens(heuristics.dense_beta2(batch), batch) for batch in (32, 128, 1024)]
    assert max(lives) / min(lives) == pytest.approx(1)


def test_a_batch_is_halved_until_its_rate_is_allowed() -> None:
    small = heuristics.dense_batch(2**16 * 4096 * 1000, 512)
    assert heuristics.dense_learning_rate(small, 512) <= 0.01 < heuristics.dense_learning_rate(2 * small, 512)


def test_the_two_fits_of_the_critical_batch_contradict_each_other() -> None:
    (a, b), (c, d) = BATCH_LAWS
    assert a * 1e23**b / (c * 1e23**d) == pytest.approx(2.6, abs=0.05)


def test_a_growing_power_law_is_fitted_with_its_interval() -> None:
    """Optima and critical batches: y = a C^b, which is the pinned law with asymptote 0 and a negative exponent."""
    budgets = np.array([1e18, 3e18, 1e19, 3e19, 1e20])
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, 5))
    law = fit_pinned(budgets, 1.09e-2 * budgets**0.535 * noise, 0.0)
    low, high = law.interval(1e21)
    assert -law.exponent == pytest.approx(0.535, abs=0.05) and low < 1.09e-2 * 1e21**0.535 < high


def test_the_terms_of_seed_noise_are_distinguished() -> None:
    random = np.random.default_rng(1)
    variances = []
    for _ in range(200):
        table = 3 + random.normal(0, 0.02, (4, 1)) + random.normal(0, 0.01, (1, 4)) + random.normal(0, 0.003, (4, 4))
        variances.append(seed_variance(table))
    assert np.mean([each.initialization for each in variances]) == pytest.approx(4e-4, rel=0.2)
    assert np.mean([each.data_order for each in variances]) == pytest.approx(1e-4, rel=0.2)
    assert np.mean([each.rest for each in variances]) == pytest.approx(9e-6, rel=0.1)
    assert variances[0].smallest_visible(3) > variances[0].smallest_visible(12)
    with pytest.raises(ValueError, match="at least 2"):
        seed_variance(np.ones((1, 3)))
    with pytest.raises(ValueError, match="diverged"):
        seed_variance(np.array([[1.0, 2.0], [np.nan, 1.0]]))
