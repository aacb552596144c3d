"""The joint test of forecasts: its p values are uniform under the model, and small or large where the errors are not those."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from simulated import sweep, trials

from science.fit_sweep import FitConfig, SweepFit, fit_sweep
from science.forecasts.joint import JointForecast, averages, differences, joint_forecast
from science.laws.calibrate import two_terms
from science.laws.fit import Fit, fit
from science.laws.forms import CHINCHILLA
from science.laws.simulate import best_size, design, known_laws, simulate

SIGMA = 0.007
LAW = known_laws()[1].loss
RUNS = [best_size(LAW, budget) for budget in (2e13, 2e13, 4e13, 4e13)]
SIZES, TOKENS = (np.array(column) for column in zip(*RUNS, strict=True))


def uniform(values: list[float]) -> None:
    """Counts below some thresholds lie within exact binomial bounds of .999 (each side .0005)."""
    found = np.array(values)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        below = int((found <= share).sum())
        tail = float(special.bdtr(below, len(found), share)), float(special.bdtrc(below - 1, len(found), share))
        assert min(tail) > 0.0005, (share, below, len(found))


def one_of(several: Fit, number: int) -> Fit:
    """The fit of one data set of many."""
    own = ("parameters", "covariance", "spread", "freedom", "lack_of_fit", "converged")
    return replace(several, **{name: getattr(several, name)[[number]] for name in own})


@pytest.fixture(scope="module")
def fitted() -> SweepFit:
    return fit_sweep(trials(sweep()), FitConfig(calibration_draws=50))


def joint(fitted: SweepFit, stretch: float = 1.0) -> JointForecast:
    stretches = {each.form.name: [stretch] * len(RUNS) for each in fitted.fits}
    return joint_forecast(fitted.fits, SIZES.tolist(), TOKENS.tolist(), stretches)


def test_of_simulated_sweeps_of_the_right_form_all_p_values_are_uniform() -> None:
    """Sweeps, fits and new runs, not draws of the forecast: what the test would say of an honest forecaster."""
    random, count = np.random.default_rng(0), 300
    data = simulate(LAW, design(), count, SIGMA, random)
    exact = fit(CHINCHILLA, design().with_losses(LAW(data.parameters, data.tokens)), delta=1e-3)
    several = fit(CHINCHILLA, data, start=exact.parameters[0])
    measured = LAW(SIZES, TOKENS) + two_terms(random, SIGMA, (count, len(RUNS)))
    stretches = {CHINCHILLA.name: [1.0] * len(RUNS)}
    tests = [
        joint_forecast([one_of(several, number)], SIZES.tolist(), TOKENS.tolist(), stretches).test(losses, 400, number)
        for number, losses in enumerate(measured)
    ]
    for values in ("p", "budgets", "seeds", "own_noise"):
        uniform([getattr(each, values) for each in tests])
    assert 0.95 < np.mean([each.holds for each in tests]) < 1


def test_of_one_form_the_p_value_is_that_of_f(fitted: SweepFit) -> None:
    (chinchilla,) = (each for each in fitted.fits if each.form is CHINCHILLA)
    alone = joint_forecast([chinchilla], SIZES.tolist(), TOKENS.tolist(), {CHINCHILLA.name: [1.0] * 4})
    errors = np.array([0.01, -0.004, 0.012, 0.02])
    found = alone.test(alone.point + errors, count=100_000)
    statistic = errors @ np.linalg.solve(chinchilla.joint_covariance(SIZES, TOKENS), errors) / 4
    assert found.statistic == pytest.approx(statistic)
    p = float(special.fdtrc(4, float(chinchilla.freedom[0]), statistic))
    assert abs(found.p - p) < 4 * (p * (1 - p) / 100_000) ** 0.5


def test_under_a_mixture_of_forms_p_values_are_uniform(fitted: SweepFit) -> None:
    """Outcomes are drawn form by form with a Cholesky factor, which the code under test does not use."""
    random, of = np.random.default_rng(1), joint(fitted, stretch=1.2)
    assert len(of.weights) == 3 and of.weights.max() < 0.9, "several forms count"
    values = []
    for number in range(300):
        form = random.choice(3, p=of.weights)
        root = np.linalg.cholesky(of.errors[form] + np.diag(of.noises[form]))
        wide = np.sqrt(of.freedoms[form] / random.chisquare(of.freedoms[form]))
        values.append(of.test(of.centres[form] + wide * root @ random.normal(size=4), 400, number).p)
    uniform(values)


def test_errors_that_are_too_large_too_small_or_of_another_noise_are_distinguished(fitted: SweepFit) -> None:
    of = joint(fitted)
    assert of.test(of.point).p > 0.99 and not of.test(of.point).holds, "errors of 0 are no luck"
    far = of.test(of.point + 0.15)
    assert far.p < 0.01 and far.budgets < 0.01 and far.own_noise is not None and far.own_noise < 0.01
    wild = of.test(of.point + np.array([0.1, -0.1, -0.1, 0.1]))
    assert wild.p < 0.01 and wild.seeds is not None and wild.seeds < 0.01
    assert wild.budgets > 0.5, "the means of the budgets are right"
    assert wild.own_noise is not None and wild.own_noise > 0.5


def test_runs_without_a_repeat_have_no_test_of_their_noise(fitted: SweepFit) -> None:
    stretches = {each.form.name: [1.0] * 2 for each in fitted.fits}
    of = joint_forecast(fitted.fits, SIZES[[0, 2]].tolist(), TOKENS[[0, 2]].tolist(), stretches)
    found = of.test(of.point + 0.005)
    assert (found.seeds, found.own_noise) == (None, None) and found.p == found.budgets


def test_averages_and_differences_span_all_runs() -> None:
    groups = np.array([0, 1, 0, 2, 1, 0])
    means, apart = averages(groups), differences(groups)
    np.testing.assert_allclose(means @ np.array([1, 5, 2, 7, 6, 3.0]), [2, 5.5, 7])
    np.testing.assert_allclose(apart @ apart.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(apart @ means.T, 0, atol=1e-12)
