"""Confidence intervals against slow references and known coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.scoring.intervals import Z95, macro_bootstrap, ratio_bootstrap, wilson


@given(st.integers(1, 5_000), st.data())
def test_wilson_holds_the_shares_that_a_score_test_does_not_reject(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson(successes, trials)
    share = successes / trials
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):  # the definition: both bounds solve |share - p| = z * sqrt(p (1 - p) / n)
        assert abs(share - bound) == pytest.approx(Z95 * np.sqrt(bound * (1 - bound) / trials), abs=1e-6)


def test_wilson_is_the_textbook_interval():
    assert wilson(0, 20) == pytest.approx((0.0, 0.16113), abs=1e-5)
    assert wilson(10, 20) == pytest.approx((0.29930, 0.70070), abs=1e-5)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_a_share_of_nothing_is_refused(successes, trials):
    with pytest.raises(ValueError, match=f"{successes} successes of {trials} trials"):
        wilson(successes, trials)


def test_the_ratio_is_of_sums_not_a_mean_of_ratios():
    value, low, high = ratio_bootstrap(np.array([1.0, 90.0]), np.array([1.0, 30.0]), seed=0)
    assert value == pytest.approx(91 / 31)
    assert low == pytest.approx(1.0)
    assert high == pytest.approx(3.0)


def test_one_unit_stands_for_its_own_bounds():
    assert ratio_bootstrap(np.array([3.0]), np.array([2.0]), seed=0) == (1.5, 1.5, 1.5)


def test_intervals_are_a_function_of_the_data_and_the_seed():
    rng = np.random.default_rng(1)
    bits, sizes = rng.uniform(1, 3, 50), rng.uniform(50, 100, 50)
    assert ratio_bootstrap(bits, sizes, 1) == ratio_bootstrap(bits, sizes, 1)
    assert ratio_bootstrap(bits, sizes, 1) != ratio_bootstrap(bits, sizes, 2)
    assert macro_bootstrap([(bits, sizes)] * 2, 1) == macro_bootstrap([(bits, sizes)] * 2, 1)


def coverage(interval, truth: float, rng: np.random.Generator) -> float:
    """Share of 200 samples whose interval holds the truth: 95 % less a bootstrap's bias at small n, give or take 1.5 points."""
    hits = 0
    for seed in range(200):
        low, high = interval(rng, seed)
        hits += low <= truth <= high
    return hits / 200


def sample(rng: np.random.Generator, rate: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = rng.uniform(50, 150, n)
    return sizes * rate + rng.normal(0, 20, n), sizes


def test_bootstraps_hold_the_truth_about_as_often_as_they_say():
    rates = (1.0, 2.0, 3.0, 4.0)

    def one(rng, seed):
        return ratio_bootstrap(*sample(rng, 2.0, 40), seed)[1:]

    def macro(rng, seed):
        return macro_bootstrap([sample(rng, rate, 40) for rate in rates], seed)[1:]

    assert 0.88 <= coverage(one, 2.0, np.random.default_rng(0)) <= 0.99
    assert 0.88 <= coverage(macro, 2.5, np.random.default_rng(1)) <= 0.99


def test_a_mean_of_many_groups_is_surer_than_the_mean_of_their_bounds():
    rng = np.random.default_rng(0)
    groups = [sample(rng, rate, 30) for rate in (1.0, 2.0, 3.0, 4.0)]
    value, low, high = macro_bootstrap(groups, seed=0)
    alone = [ratio_bootstrap(*group, seed=0) for group in groups]
    assert value == pytest.approx(np.mean([a[0] for a in alone]))
    widths = np.mean([a[2] - a[1] for a in alone])
    assert (high - low) / widths == pytest.approx(0.5, abs=0.12)  # four independent groups: one over the root of four


def test_a_mean_over_no_group_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        macro_bootstrap([], 0)
