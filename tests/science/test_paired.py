"""Paired differences: the interval covers the truth, a rate at the edge is refused, compute is read off a measured curve."""

import numpy as np
import pytest

from science.paired import best_rate, compute_for, paired


def test_the_interval_holds_the_truth_in_95_of_100_cases_whatever_the_seeds_share() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        shared = random.normal(size=5)
        difference = paired(shared + random.normal(size=5) * 0.1, shared - 0.3 + random.normal(size=5) * 0.1)
        covered += difference.low <= -0.3 <= difference.high
    assert 0.935 < covered / 2000 < 0.965


def test_an_interval_by_hand() -> None:
    difference = paired([1.0, 2.0, 3.0], [0.9, 1.9, 2.6])
    assert difference.mean == pytest.approx(-0.2)
    assert (difference.low, difference.high) == pytest.approx((-0.2 - 4.30265 * 0.1, -0.2 + 4.30265 * 0.1), abs=1e-5)
    assert not difference.excludes_zero and paired([1.0, 1.1], [0.5, 0.61]).excludes_zero
    with pytest.raises(ValueError, match="1 baseline and 1 variant runs"):
        paired([1.0], [2.0])


def test_the_best_rate_lies_inside_its_grid_or_the_grid_is_refused() -> None:
    assert best_rate({1e-3: 2.0, 2e-3: 1.9, 4e-3: None}) == 2e-3
    for losses in ({1e-3: 1.8, 2e-3: 1.9, 4e-3: 2.0}, {1e-3: 2.0, 2e-3: 1.9, 4e-3: 1.8}):
        with pytest.raises(ValueError, match="at the edge of the grid"):
            best_rate(losses)
    with pytest.raises(ValueError, match="2 of 2 rates"):
        best_rate({1e-3: 1.8, 2e-3: 1.9})


def test_compute_is_read_between_measured_budgets_only() -> None:
    flops, losses = [1e12, 4e12, 2e12], [2.0, 1.8, 1.9]
    assert compute_for(1.95, flops, losses) == pytest.approx(1e12 * 2**0.5)
    assert compute_for(1.8, flops, losses) == pytest.approx(4e12)
    assert compute_for(2.1, flops, losses) is None and compute_for(1.7, flops, losses) is None
