"""Costs fitted to sizes: coefficients come back, the interval holds another run, bad inputs are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.costs.rates import fit

SIZES = [2**20, 2**21, 2**22, 2**23] * 2


def cost(size, a, b, c):
    return a + b * size + c * size * np.log2(size)


@given(st.floats(0.1, 5), st.floats(1e-8, 1e-6), st.floats(1e-10, 1e-8))
def test_a_cost_without_noise_is_predicted_far_away(a, b, c):
    rate = fit(SIZES, [cost(size, a, b, c) for size in SIZES])
    assert rate.at(2**40).value == pytest.approx(cost(2.0**40, a, b, c), rel=0.02)


def test_the_interval_holds_the_true_cost_as_often_as_it_says():
    """5 % of noise, 200 fits of four sizes twice, predicted at 4 times the largest size: 95 % would be 190."""
    choose = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        noisy = [cost(size, 1, 2e-7, 1e-8) * (1 + choose.normal(0, 0.05)) for size in SIZES]
        found = fit(SIZES, noisy).at(2**25)
        held += found.low <= cost(2.0**25, 1, 2e-7, 1e-8) <= found.high
    assert held >= 170


def test_costs_are_never_negative():
    rate = fit([1e6, 2e6, 4e6, 1e6, 2e6, 4e6], [3.0, 2.0, 1.0, 3.0, 2.0, 1.0])
    assert rate.coefficients.min() >= 0 and rate.at(1e9).low >= 0


@pytest.mark.parametrize(
    ("sizes", "costs", "said"),
    [([1e6, 2e6], [1.0, 2.0], "at least 3"), ([1e6, 2e6, 3e6], [1.0, 0.0, 2.0], "above 0")],
)
def test_what_cannot_be_fitted_is_refused(sizes, costs, said):
    with pytest.raises(ValueError, match=said):
        fit(sizes, costs)
