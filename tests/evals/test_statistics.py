"""Statistics of results: shares with ungraded answers, McNemar's test, the sign test, paired intervals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evals.scoring.intervals import wilson
from evals.scoring.statistics import compare_paired, graded_of, is_incomplete, share_score, sign_test


@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(1, n).flatmap(lambda g: st.tuples(st.just(g), st.integers(0, g))))
    )
)
def test_a_share_holds_whatever_the_ungraded_would_have_been(case):
    attempted, (graded, right) = case
    score = share_score("t", "accuracy", right, graded, attempted)
    for ungraded_right in range(attempted - graded + 1):
        low, high = wilson(right + ungraded_right, attempted)
        assert score.low <= low + 1e-12
        assert high <= score.high + 1e-12
    if graded == attempted:
        assert (score.low, score.high) == wilson(right, attempted)


@pytest.mark.parametrize("counts", [(1, 0, 1), (3, 2, 4), (1, 5, 4)])
def test_counts_that_are_no_share_are_refused(counts):
    with pytest.raises(ValueError, match="give no share"):
        share_score("t", "accuracy", *counts)


def test_less_than_nine_tenths_graded_is_incomplete():
    assert not is_incomplete(90, 100)
    assert is_incomplete(89, 100)
    labels = [graded_of(n, 1000) for n in (1000, 900, 899)]
    assert labels == ["1,000", "900 of 1,000", "899 of 1,000, incomplete"]


def test_a_comparison_of_verdicts_is_mcnemars():
    before, after = [1, 1, 0, 0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]
    comparison = compare_paired(before, after, 0, higher_is_better=True)
    assert (comparison.wins, comparison.losses, comparison.num_items) == (5, 1, 10)
    exact = 2 * sum(math.comb(6, k) for k in (0, 1)) / 2**6
    assert comparison.p_value == pytest.approx(exact)
    assert comparison.difference == pytest.approx(0.4)


@given(st.integers(0, 3_000), st.integers(0, 3_000))
@example(10, 1_065)
def test_the_sign_test_is_scipys(wins: int, losses: int) -> None:
    trials = wins + losses
    exact = binomtest(wins, trials).pvalue if trials else 1.0
    if exact == 0:  # scipy 1.18 underflows below 1e-299
        exact = float(2 * Fraction(sum(math.comb(trials, k) for k in range(min(wins, losses) + 1)), 2**trials))
    assert sign_test(wins, losses) == pytest.approx(exact, rel=1e-9, abs=1e-300)


def test_lower_bits_are_a_win_and_the_difference_keeps_its_sign():
    comparison = compare_paired([2.0, 2.0, 3.0], [1.0, 1.5, 3.5], 0, higher_is_better=False)
    assert (comparison.wins, comparison.losses) == (2, 1)
    assert comparison.difference < 0


def test_intervals_of_equal_models_hold_zero_nineteen_times_in_twenty():
    rng = np.random.default_rng(3)
    decided = [compare_paired(rng.random(80), rng.random(80), n, higher_is_better=True).decided for n in range(120)]
    assert sum(decided) <= 14  # 6 are expected; 14 or more have a chance of .003


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0, 2.0]), ([], []), ([math.nan], [1.0])])
def test_values_that_cannot_be_paired_are_refused(first, second):
    with pytest.raises(ValueError, match=r"cannot be paired|not finite"):
        compare_paired(first, second, 0, higher_is_better=True)
