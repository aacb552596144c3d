"""The law through a ladder's rungs: intervals of a larger branch hold as often as they say; bad ladders are refused."""

import numpy as np
import pytest

from science.forecasts.freeze import RefusedForecastError
from science.forecasts.ladder import fit_ladder

FLOOR, SIGMA, RUNG = 2.0, 0.005, 0.01
"""Asymptote, noise of a branch around its rung, and of a rung around the law; nats."""
RUNGS, ORDERS, TARGET = np.geomspace(1e11, 3e12, 5), 3, 1e13
FLOPS = np.repeat(RUNGS, ORDERS)


def planted(flops: np.ndarray | float) -> np.ndarray:
    return FLOOR + 2.5 * (np.asarray(flops) / 1e11) ** -0.15


def drawn(random: np.random.Generator, flops: np.ndarray, orders: int) -> np.ndarray:
    """Losses of branches: what the seed of a rung does is shared by its branches."""
    return (
        planted(flops) + np.repeat(random.normal(0, RUNG, len(flops) // orders), orders) + random.normal(0, SIGMA, len(flops))
    )


@pytest.mark.parametrize("asymptote", [FLOOR, pytest.param(None, marks=pytest.mark.slow)])
def test_the_interval_of_the_largest_branch_holds_as_often_as_it_says(asymptote: float | None) -> None:
    random, held, refused = np.random.default_rng(0), [], 0
    for _ in range(250):
        losses = drawn(random, FLOPS, ORDERS)
        try:
            ladder = fit_ladder(FLOPS, losses, asymptote)
        except RefusedForecastError:
            refused += 1
            continue
        low, high = ladder.law.interval(TARGET)
        held.append(bool(low <= drawn(random, np.array([TARGET]), 1)[0] <= high))
    assert 0.86 <= np.mean(held) <= 0.95 and refused <= 0.03 * 250


def test_a_ladder_without_noise_finds_what_was_planted() -> None:
    for asymptote in (FLOOR, None):
        ladder = fit_ladder(FLOPS, planted(FLOPS), asymptote)
        assert ladder.law.at(TARGET) == pytest.approx(float(planted(TARGET)), abs=1e-4) and ladder.noise == 0
        assert ladder.law.exponent == pytest.approx(0.15, abs=1e-3)


def test_losses_that_rise_are_refused() -> None:
    losses = planted(FLOPS)[::-1] + np.random.default_rng(1).normal(0, SIGMA, len(FLOPS))
    with pytest.raises(RefusedForecastError, match="the losses of larger rungs are not lower"):
        fit_ladder(FLOPS, losses, FLOOR)


@pytest.mark.parametrize(
    ("keep", "asymptote", "message"),
    [
        (6, FLOOR, "the ladder has 2 rungs; at least 3 with a declared asymptote"),
        (9, None, "the ladder has 3 rungs; at least 3 with a declared asymptote, 4 with a free one"),
        (15, 9.0, "the rungs lie on no power law: asymptote is 9.0; it must be below the lowest loss"),
    ],
)
def test_a_ladder_that_says_nothing_is_refused(keep: int, asymptote: float | None, message: str) -> None:
    losses = planted(FLOPS) + np.random.default_rng(2).normal(0, SIGMA, len(FLOPS))
    with pytest.raises(RefusedForecastError, match=message):
        fit_ladder(FLOPS[:keep], losses[:keep], asymptote)


def test_rungs_without_a_second_order_are_refused() -> None:
    with pytest.raises(RefusedForecastError, match="the noise of a branch is unknown"):
        fit_ladder(RUNGS, planted(RUNGS), FLOOR)
