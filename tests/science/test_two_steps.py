"""Scores by losses: the curve finds what was planted, and intervals of a new run hold as often as they say."""

import numpy as np
import pytest

from science.forecasts.two_steps import DRAWS, RefusedScoreError, ScoreStep, fit_curve, forecast_score

STEP = ScoreStep("quiz", "accuracy", floor=0.25)
LOSSES = np.linspace(2.6, 3.6, 9)
SCATTER, LOSS_SIGMA = 0.01, 0.03


def planted(losses: np.ndarray | float) -> np.ndarray:
    return 0.25 + 0.75 / (1 + np.exp(4 * (np.asarray(losses) - 3.0)))


def test_a_curve_without_scatter_is_the_planted_one() -> None:
    curve = fit_curve(STEP, LOSSES, planted(LOSSES))
    new = np.array([2.2, 3.05, 4.0])
    np.testing.assert_allclose(curve.at(new), planted(new), atol=1e-6)


@pytest.mark.parametrize("target", [pytest.param(2.4, marks=pytest.mark.slow), 3.1])
def test_intervals_of_a_new_run_hold_as_often_as_they_say(target: float) -> None:
    """The forecast of the loss is right: its draws are normal around a centre that is itself off by its error."""
    random = np.random.default_rng(0)
    held = {0.5: 0, 0.9: 0}
    count = 600
    for number in range(count):
        curve = fit_curve(STEP, LOSSES, planted(LOSSES) + random.normal(0, SCATTER, len(LOSSES)))
        centre = target + random.normal(0, LOSS_SIGMA)
        forecast = forecast_score(curve, centre + np.random.default_rng(number).normal(0, LOSS_SIGMA, 4000), LOSS_SIGMA)
        score = planted(target) + random.normal(0, SCATTER)
        for level in held:
            low, high = forecast.intervals[level]
            held[level] += low <= score <= high
    assert 0.86 <= held[0.9] / count <= 0.94 and 0.44 <= held[0.5] / count <= 0.56


def test_the_uncertainty_of_the_loss_widens_the_score_where_the_curve_is_steep() -> None:
    curve = fit_curve(STEP, LOSSES, planted(LOSSES) + np.random.default_rng(1).normal(0, SCATTER, len(LOSSES)))
    draws = np.random.default_rng(2).normal(0, LOSS_SIGMA, DRAWS)
    widths = {}
    for centre, spread in ((3.0, 1.0), (3.0, 0.0), (2.0, 1.0)):
        low, high = forecast_score(curve, centre + spread * draws, LOSS_SIGMA).intervals[0.9]
        widths[centre, spread] = high - low
    assert widths[3.0, 1.0] > 1.5 * widths[3.0, 0.0] and widths[3.0, 1.0] > 1.5 * widths[2.0, 1.0]


def test_a_score_that_does_not_follow_the_loss_is_refused() -> None:
    flat = 0.5 + np.random.default_rng(3).normal(0, 0.05, len(LOSSES))
    with pytest.raises(RefusedScoreError, match="does not follow the loss: the slope is"):
        fit_curve(STEP, LOSSES, flat)
    with pytest.raises(ValueError, match=r"floor and ceiling are both 1\.0"):
        ScoreStep("quiz", "accuracy", floor=1.0)


def test_a_score_that_falls_when_models_improve_has_its_floor_above() -> None:
    """Such as the share of texts that repeat themselves: the floor is what a useless model has."""
    step = ScoreStep("texts", "repeats", floor=1.0, ceiling=0.0)
    curve = fit_curve(step, LOSSES, 1 - planted(LOSSES))
    assert curve.at(2.5) < curve.at(3.5)
