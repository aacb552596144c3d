"""pass@k of a large run from smaller rungs: planted problems, sampled answers, one curve for all k."""

from dataclasses import replace

import numpy as np
import pytest

from evals.scoring.pass_at_k import pass_at_k, pass_curve
from science.forecasts.pass_curves import curve_of, fit_pass_curve, passes
from science.forecasts.two_steps import RefusedScoreError, Scored, ScoreStep, fit_curve, forecast_score

PROBLEMS, SAMPLES, KS = 250, 32, (1, 2, 4, 8, 16, 32)
RUNGS, TARGET = np.linspace(2.7, 3.6, 9), 2.4
LOSS_SIGMA, COUNT = 0.02, 40
HARDNESS = np.random.default_rng(0).normal(3.0, 1.5, PROBLEMS)
"""Problems differ: a few are solved by the smallest rung, most by none."""
BY_COUNT = np.array([[pass_at_k(SAMPLES, count, k) for count in range(SAMPLES + 1)] for k in KS])


def step(k: int, **changes: object) -> ScoreStep:
    return ScoreStep("planted", f"pass_at_{k}", **({"form": "pass_at_k"} | changes))  # pyrefly: ignore


def measured(loss: float, random: np.random.Generator) -> np.ndarray:
    """pass@k of a rung from sampled answers, for each of KS."""
    right = random.binomial(SAMPLES, 1 / (1 + np.exp(5 * (loss - 3.0) + HARDNESS)))
    return BY_COUNT[:, right].mean(axis=1)


def rungs(random: np.random.Generator) -> dict[int, np.ndarray]:
    values = np.array([measured(loss, random) for loss in RUNGS])
    return {k: values[:, place] for place, k in enumerate(KS)}


def test_the_numbers_are_those_of_an_evaluation() -> None:
    right = np.random.default_rng(1).binomial(SAMPLES, 1 / (1 + np.exp(HARDNESS))).tolist()
    scores = {score.metric: score.value for score in pass_curve("planted", SAMPLES, right, 0).scores()}
    found = measured(3.0, np.random.default_rng(1))
    assert found == pytest.approx([scores[f"pass_at_{k}"] for k in KS])


def test_a_curve_without_noise_is_the_planted_one() -> None:
    planted = np.array([-1.0, -5.0, 0.4])
    values = passes(np.broadcast_to(planted, (9, 3)), RUNGS - RUNGS.mean(), KS)
    curve = fit_pass_curve(step(8), RUNGS, dict(zip(KS, values.T, strict=True)))
    assert curve.parameters == pytest.approx(planted, abs=1e-4)
    assert curve.at(2.4) == pytest.approx(passes(planted, np.array(2.4 - RUNGS.mean()), (8,))[0], abs=1e-5)
    hardness = np.exp(0.4) * np.random.default_rng(0).normal(size=400_000)
    chances = 1 / (1 + np.exp(1.0 + 5.0 * (2.4 - RUNGS.mean()) - hardness))
    assert curve.at(2.4) == pytest.approx((1 - (1 - chances) ** 8).mean(), abs=2e-3)


@pytest.mark.parametrize("k", [1, 8, 32])
def test_intervals_of_a_larger_run_hold_as_often_as_they_say(k: int) -> None:
    """Its loss is below all rungs, and the forecast of it is off by its own error. A sigmoid for one k is further off."""
    random, held, off, alone = np.random.default_rng(k), 0, [], []
    for number in range(COUNT):
        by_k = rungs(random)
        score = measured(TARGET, random)[KS.index(k)]
        losses = TARGET + random.normal(0, LOSS_SIGMA) + np.random.default_rng(number).normal(0, LOSS_SIGMA, 2000)
        forecast = forecast_score(fit_pass_curve(step(k), RUNGS, by_k), losses, LOSS_SIGMA)
        low, high = forecast.intervals[0.9]
        held += low <= score <= high
        off.append(forecast.point - score)
        alone.append(forecast_score(fit_curve(step(k, form="sigmoid"), RUNGS, by_k[k]), losses, LOSS_SIGMA).point - score)
    assert held / COUNT >= 0.85
    assert abs(np.mean(off)) < 0.01 < abs(np.mean(alone))


@pytest.mark.parametrize("form", ["pass_at_k", "sigmoid"])
@pytest.mark.parametrize(("loss", "bound"), [(1.2, 1.0), (4.6, 0.0)])
def test_no_end_of_an_interval_is_beyond_what_a_share_can_be(form: str, loss: float, bound: float) -> None:
    """Where the curve nears 0 or 1 the scatter about it does not; the ends that are inside stay where they are."""
    random = np.random.default_rng(0)
    by_k, losses = rungs(random), loss + random.normal(0, LOSS_SIGMA, 2000)
    curve = curve_of(step(8, form=form), Scored(("a",) * 9, RUNGS, by_k[8], "policy", by_k))
    curve = replace(curve, spread=0.05)
    free = replace(curve, step=ScoreStep("planted", "pass_at_8", "any"))
    made, unbounded = (forecast_score(each, losses, LOSS_SIGMA) for each in (curve, free))
    for level, ends in unbounded.intervals.items():
        assert made.intervals[level] == pytest.approx(np.clip(ends, 0, 1)), level
    beyond = [abs(end - 0.5) > 0.5 for end in unbounded.intervals[0.9]]
    assert any(beyond) and bound in made.intervals[0.9] and made.intervals[0.9][0] < made.intervals[0.9][1]


def test_the_form_decides_the_curve_and_other_metrics_are_refused() -> None:
    by_k = rungs(np.random.default_rng(0))
    points = Scored(("a",) * 9, RUNGS, by_k[8], "policy", by_k)
    assert len(curve_of(step(8), points).parameters) == 3 and len(curve_of(step(8, form="sigmoid"), points).parameters) == 2
    flat = {k: np.full(9, 0.5) + np.random.default_rng(k).normal(0, 0.05, 9) for k in KS}
    with pytest.raises(RefusedScoreError, match="pass_at_8 does not follow the loss"):
        fit_pass_curve(step(8), RUNGS, flat)
    with pytest.raises(RefusedScoreError, match="4 checkpoints have a loss and a score; at least 6"):
        fit_pass_curve(step(8), RUNGS[:4], {k: values[:4] for k, values in by_k.items()})
    floor, percent = {"metric": "pass_at_8", "floor": 0.25}, {"metric": "pass_at_8", "unit": "%"}
    for bad in ({"metric": "accuracy"}, {"metric": "pass_at_x"}, floor, percent):
        with pytest.raises(ValueError, match="needs a metric such as pass_at_8, the unit share, floor 0 and ceiling 1"):
            ScoreStep("planted", **bad, form="pass_at_k")  # pyrefly: ignore
