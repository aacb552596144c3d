"""Fits of laws: published tables, planted faults, known parameters, and intervals that hold in simulated sweeps."""

import numpy as np
import pytest
from scipy import optimize
from simulated import SIGMA, sweep, trials

from science.fit_sweep import FitConfig, fit_sweep, forecast
from science.laws.coverage import study
from science.laws.descent import descend, jacobian
from science.laws.fit import fit
from science.laws.forms import CHINCHILLA, FORMS, pinned
from science.laws.parabola import valleys
from science.laws.power import fit_free, fit_pinned, reject_pin
from science.laws.simulate import best_size, design, known_laws, simulate
from science.published import BETA_SWEEPS, PINNED, V16, half_life_tokens
from science.trials import RefusedSweepError, Trial, points_of


def faults(given: list[Trial]) -> list[str]:
    with pytest.raises(RefusedSweepError) as refusal:
        fit_sweep(given, FitConfig())
    return [fault.name for fault in refusal.value.faults]


def test_a_descent_ends_where_scipy_ends() -> None:
    data = sweep()
    points = design().with_losses(data)
    n, d = points.reference.logs(points.parameters, points.tokens)

    def residuals(p: np.ndarray) -> np.ndarray:
        return np.exp(CHINCHILLA.log_loss(p, n, d)) - data

    ours = fit(CHINCHILLA, points, delta=1e-3)
    peers = [
        optimize.least_squares(
            lambda p: residuals(p[None])[0], start, loss="huber", f_scale=1e-3 * data.mean(), xtol=1e-14, ftol=1e-14
        )
        for start in CHINCHILLA.starts(n, d, data)[::5]
    ]
    best = min(peers, key=lambda peer: peer.cost)
    again = descend(residuals, ours.parameters, 1e-3 * data.mean())
    assert again.objective[0] <= best.cost * (1 + 1e-6)
    assert ours.converged.all()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_slopes_by_complex_steps_are_the_slopes(form) -> None:
    points = design()
    n, d = points.reference.logs(points.parameters, points.tokens)
    p = form.starts(n, d, sweep())[10:11]
    slopes = jacobian(lambda q: form.log_loss(q, n, d), p)[0]
    for index in range(p.shape[1]):
        step = np.zeros_like(p)
        step[0, index] = 1e-6
        rough = (form.log_loss(p + step, n, d) - form.log_loss(p - step, n, d))[0] / 2e-6
        np.testing.assert_allclose(slopes[:, index], rough, atol=1e-7)


def test_without_noise_a_law_is_found_exactly() -> None:
    points = simulate(known_laws()[1].loss, design(), 1, 0.0, np.random.default_rng(0))
    law = fit(CHINCHILLA, points, delta=1e-3)
    np.testing.assert_allclose(law.parameters[0, 3:], [0.3478, 0.3658], rtol=1e-6)


def test_a_pinned_parameter_is_held_and_named() -> None:
    form = pinned(CHINCHILLA, {"e": np.log(2.0)})
    assert form.names == ("a", "b", "alpha", "beta") and "e = 0.693" in form.name
    points = simulate(known_laws()[1].loss, design(), 1, 0.0, np.random.default_rng(0))
    np.testing.assert_allclose(fit(form, points, delta=1e-3).parameters[0, 2:], [0.3478, 0.3658], rtol=1e-6)
    with pytest.raises(ValueError, match="has no parameter 'floor'"):
        pinned(CHINCHILLA, {"floor": 1.0})


def test_planted_faults_are_named_and_nothing_is_forecast() -> None:
    good = sweep()
    points = design()
    edge = good + 0.5 * np.where(points.budgets == 1e12, np.log(points.parameters / 39_500), 0)
    concave = np.where(points.budgets == 2e12, 9 - good, good)
    odd = good + np.where(points.parameters == 154_000, 0.06, 0)
    assert faults(trials(edge)) == ["edge_minimum"]
    assert "concave_budget" in faults(trials(concave))
    assert faults(trials(odd)) == ["size_off_the_law"]


def test_incomparable_trials_are_named() -> None:
    given = trials(sweep())
    first = given[0]
    assert faults([Trial(**(vars(first) | {"vocabulary": "w"})), *given[1:]]) == ["mixed_vocabularies"]
    assert faults([Trial(**(vars(first) | {"policy": "q"})), *given[1:]]) == ["mixed_policies"]
    assert faults([Trial(**(vars(first) | {"flops": first.budget * 1.011})), *given[1:]]) == ["flops_off"]
    assert faults([Trial(**(vars(first) | {"schedule_end": 0.1})), *given[1:]]) == ["unequal_schedule_ends"]
    assert faults([trial for trial in given if trial.budget < 3e12]) == ["too_few_budgets"]
    small = [trial for trial in given if trial.budget > 1e12 or trial.parameters < 1e5]
    assert faults(small) == ["too_few_sizes"]
    assert faults(list({(t.budget, t.parameters): t for t in given}.values())) == ["no_repeats"]


def test_a_diverged_trial_is_a_result_and_at_the_centre_a_fault() -> None:
    given = trials(sweep())
    points = points_of(given)
    low = valleys(points)[1]
    gone = min((t for t in given if t.budget == low.budget), key=lambda t: abs(np.log(t.parameters / low.parameters)))
    lost = Trial(**(vars(gone) | {"loss": None, "status": "diverged"}))
    assert faults([lost if trial is gone else trial for trial in given]) == ["diverged_centre"]
    far = max((t for t in given if t.budget == low.budget), key=lambda t: t.parameters)
    fit_sweep([Trial(**(vars(far) | {"loss": None, "status": "diverged"})) if t is far else t for t in given], FitConfig())


def test_a_sound_sweep_is_fitted_and_forecasts_with_measured_coverage() -> None:
    fitted = fit_sweep(trials(sweep()), FitConfig())
    n, d = best_size(known_laws()[1].loss, 4e13)
    ahead = forecast(fitted, n, d)
    assert abs(sum(ahead.weights.values()) - 1) < 1e-12 and ahead.weights["kaplan"] < 1e-3
    widths = [high - low for low, high in ahead.intervals.values()]
    assert widths == sorted(widths) and ahead.intervals[0.9][0] < ahead.point < ahead.intervals[0.9][1]
    assert all(0.7 < checked.coverage <= 1 and checked.stretch >= 1 for checked in ahead.coverage.values())
    assert forecast(fitted, n, d) == ahead


def test_the_published_law_and_both_outcomes() -> None:
    held, free = fit_pinned(V16.budgets, V16.losses, PINNED), fit_free(V16.budgets, V16.losses)
    assert abs(held.exponent - 0.0941) < 2e-4 and abs(held.amplitude - 95.2) < 0.6
    assert abs(held.at(1e21) - 2.606) < 1e-3 and abs(held.at(1e23) - 2.252) < 1e-3
    assert abs(free.asymptote - 1.438) < 5e-4 and abs(free.half_width() - 0.127) < 5e-4
    inside = {
        law.pinned: [low < V16.outcomes[c] < high for c in V16.outcomes for low, high in [law.interval(c)]]
        for law in (held, free)
    }
    assert inside == {True: [False, False, False], False: [True, False, True]}
    test = reject_pin(V16.budgets, V16.losses, PINNED)
    assert abs(test.statistic - 11.0) < 0.05 and abs(test.p - 0.045) < 5e-4
    refit = [fit_pinned(V16.budgets[:count], V16.losses[:count], PINNED).exponent for count in (3, 4, 5, 6)]
    np.testing.assert_allclose(refit, [0.0922, 0.0932, 0.0938, 0.0941], atol=2e-4)
    drift = [fit_free(V16.budgets[:count], V16.losses[:count]) for count in (4, 5)]
    np.testing.assert_allclose([law.at(1e23) for law in drift], [2.179, 2.204], atol=1e-3)


def test_published_beta2_falls_with_the_batch_and_its_half_life_is_nearer_to_constant() -> None:
    for table in BETA_SWEEPS:
        best = [table.best(batch) for batch in sorted(table.rows)]
        assert best == sorted(best, reverse=True)
        lives = [half_life_tokens(beta2, batch) for beta2, batch in zip(best, sorted(table.rows), strict=True)]
        assert max(lives) / min(lives) < max(table.rows) / min(table.rows)


def test_a_power_law_says_what_it_cannot_fit() -> None:
    with pytest.raises(ValueError, match="needs at least 4"):
        fit_free(V16.budgets[:3], V16.losses[:3])
    with pytest.raises(ValueError, match="must be below the lowest loss"):
        fit_pinned(V16.budgets, V16.losses, 2.8)
    with pytest.raises(ValueError, match="end of its range"):
        fit_free(V16.budgets, 3 + 0.1 * np.log(V16.budgets / 1e18))


@pytest.mark.slow
def test_intervals_hold_in_a_slice_of_the_coverage_study() -> None:
    """25 sweeps a law at one target; the bars of the study hold for 400 (docs/design/science.md)."""
    rows = study(25, SIGMA, seed=5, ratios=(5.0,))
    assert len(rows) == 4
    assert np.mean([row.right for row in rows if row.right is not None]) > 0.8
    assert min(row.envelope for row in rows) > 0.75
    assert np.mean([row.envelope_width / row.known_width for row in rows]) < 2.5
