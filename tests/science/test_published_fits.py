"""Fits of published tables: the v16 law by each number of budgets, its residuals in nats, and tables of beta2 and batch."""

import numpy as np
import pytest

from benchmarks.science.published_fits import TARGET, best_losses, half_lives, leave_future_out
from science.laws.power import fit_free, reject_pin
from science.published import BETA_SWEEPS, PINNED, V16, half_life_tokens


def test_in_nats_the_pinned_law_is_the_published_one() -> None:
    law = reject_pin(V16.budgets, V16.losses, PINNED)
    assert abs(law.amplitude - 94.35) < 0.01 and abs(law.exponent - 0.0939) < 5e-5


def test_each_pinned_refit_holds_its_next_budget_until_the_one_that_was_held_out() -> None:
    refits = leave_future_out(pinned=True)
    assert [refit.budgets for refit in refits] == [3, 4, 5, 6]
    np.testing.assert_allclose([refit.law.amplitude for refit in refits], [87.684, 91.571, 93.975, 95.182], rtol=0.007)
    np.testing.assert_allclose([refit.law.exponent for refit in refits], [0.0922, 0.0932, 0.0938, 0.0941], atol=2e-4)
    held = [low < loss < high for _, loss, (low, high) in (refit.following for refit in refits)]
    assert held == [True, True, True, False]
    for refit in refits:
        low, high = refit.law.interval(TARGET)
        assert not low < V16.outcomes[TARGET] < high, "no pinned refit holds the outcome at 1e23"


def test_free_refits_drift_to_the_outcome_with_the_published_intervals() -> None:
    refits = leave_future_out(pinned=False)
    assert [refit.budgets for refit in refits] == [4, 5, 6]
    ends = np.array([refit.law.interval(TARGET) for refit in refits])
    np.testing.assert_allclose(ends.mean(axis=1), [2.179, 2.204, 2.2241], atol=6e-4)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2, [0.065, 0.028, 0.0216], atol=5e-4)
    assert ((ends[:, 0] < V16.outcomes[TARGET]) & (V16.outcomes[TARGET] < ends[:, 1])).tolist() == [True, False, True]
    assert all(low < loss < high for _, loss, (low, high) in (refit.following for refit in refits))


def test_published_tables_of_beta2_keep_the_half_life_in_tokens() -> None:
    lives = half_lives()
    assert lives.freedom == 4 and abs(lives.exponent + 0.238) < 1e-3 and abs(lives.half_width - 0.266) < 1e-3
    for table in BETA_SWEEPS:
        tried = {batch: [half_life_tokens(beta2, batch) for beta2 in table.beta2] for batch in table.rows}
        assert all(min(tried[batch]) < lives.best[table.width, batch] < max(tried[batch]) for batch in table.rows)


def test_published_losses_rise_nearly_as_the_square_of_the_batch() -> None:
    batches, losses = best_losses(BETA_SWEEPS[0])
    law = fit_free(1 / batches, losses)
    assert abs(law.exponent - 1.91) < 0.01 and abs(law.asymptote - 0.9719) < 1e-4 and law.freedom == 1
    few = best_losses(BETA_SWEEPS[1])
    with pytest.raises(ValueError, match="3 budgets; a power law needs at least 4"):
        fit_free(1 / few[0], few[1])
