"""The two gates: the identity of the speed-up, its interval, and every verdict."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from science.gates import GateConfig, Gates, GateVerdict, Measured, Pair, judge, speed_up
from science.laws.power import fit_pinned
from science.published import V16

LAW = fit_pinned(V16.budgets, V16.losses, 1.6)
BUDGETS = {"d512": 3.82e17, "d768": 2.81e18, "d1024": 1.16e19, "d1280": 3.46e19}
GATES = Gates(1.6, ("d512", "d768"), tuple(BUDGETS), (1e21, 1e23))
CONFIG = GateConfig("Paloma macro, nats a token", GATES, 0.001, 8)


def pairs(factor: float, speed: float = 1.0, sizes: tuple[str, ...] = tuple(BUDGETS)) -> list[Pair]:
    """Baseline on the law; the variant as if it had `factor` times the compute."""
    by_size = []
    for size in sizes:
        budget = BUDGETS[size]
        base = Measured(LAW.at(budget), budget, 1e12)
        by_size.append(Pair(size, base, Measured(LAW.at(budget * factor), budget, 1e12 * speed)))
    return by_size


@pytest.mark.parametrize("size", BUDGETS)
def test_at_equal_speed_the_factor_is_that_of_the_losses_whatever_the_budget(size: str) -> None:
    (pair,) = pairs(1.3, sizes=(size,))
    estimate = speed_up(pair, LAW, CONFIG)
    excess = (pair.baseline.loss - 1.6) / (pair.variant.loss - 1.6)
    assert estimate.factor == pytest.approx(excess ** (1 / LAW.exponent)) == pytest.approx(1.3)
    assert estimate.low < 1.3 < estimate.high


def test_a_slower_variant_loses_its_gain() -> None:
    (pair,) = pairs(1.3, speed=1 / 1.3, sizes=("d512",))
    assert speed_up(pair, LAW, CONFIG).factor == pytest.approx(1.0)


def test_every_verdict() -> None:
    assert judge(pairs(1.5), LAW, CONFIG).verdict == "promote"
    assert judge(pairs(0.7, sizes=("d512",)), LAW, CONFIG).verdict == "bench"
    assert judge(pairs(1.5, sizes=("d512", "d768")), LAW, CONFIG).why == "gate 2: no pair at d1024, d1280"
    noisy = judge(pairs(1.02), LAW, replace(CONFIG, seed_sigma=0.01))
    assert noisy.verdict == "undecided" and "would have shown" in noisy.why
    fading = [
        replace(pair, variant=replace(pair.variant, loss=LAW.at(pair.baseline.flops * factor)))
        for pair, factor in zip(pairs(1.0), (2.6, 1.9, 1.5, 1.25), strict=True)
    ]
    assert judge(fading, LAW, replace(CONFIG, seed_sigma=0.0001)).verdict == "bench"


def test_the_smallest_visible_difference_is_where_the_verdict_turns() -> None:
    base = pairs(1.0, sizes=("d512",))[0]
    seen = speed_up(base, LAW, CONFIG).smallest_visible
    for share, verdict in ((0.9, "undecided"), (1.1, "promote")):
        better = replace(base, variant=replace(base.variant, loss=base.baseline.loss - share * seen))
        assert speed_up(better, LAW, CONFIG).verdict == verdict


def test_the_smallest_visible_difference_of_a_projection_is_where_the_verdict_turns() -> None:
    """Residuals of the variant's law are those of 1 % of the excess; every size is clearly faster."""
    bent_by = dict(zip(BUDGETS, (1.01, 0.99, 0.99, 1.01), strict=True))
    by_size = pairs(1.0)
    quiet = replace(CONFIG, seed_sigma=1e-6, gates=replace(GATES, first=("d768",), second=("d1024",), projected=(1e23,)))

    def judged(excess: float) -> GateVerdict:
        variants = [
            replace(each, variant=replace(each.variant, loss=1.6 + (each.baseline.loss - 1.6) * excess * bent_by[each.size]))
            for each in by_size
        ]
        return judge(variants, LAW, quiet)

    def shares(excess: float) -> float:
        (projected,) = judged(excess).projections
        return -projected.difference / projected.smallest_visible

    turning = optimize.brentq(lambda excess: shares(excess) - 1, 0.9, 0.999)
    unclear, clear = judged(turning + 1e-5), judged(turning - 1e-5)
    (projected,) = unclear.projections
    assert (unclear.verdict, clear.verdict) == ("undecided", "promote")
    assert projected.smallest_visible == pytest.approx(projected.high - projected.difference)
    assert unclear.why == (
        f"gate 2: the projection's interval holds 0 at 1e+23 FLOPs; a difference of {projected.smallest_visible:.4f} would "
        "have shown"
    )


def test_the_interval_holds_the_truth_in_nine_of_ten_pairs() -> None:
    random = np.random.default_rng(0)
    (pair,) = pairs(1.2, sizes=("d768",))
    inside = 0
    for _ in range(400):
        sigma = 0.004 * np.sqrt(random.chisquare(8) / 8)
        noisy = Pair(
            pair.size,
            replace(pair.baseline, loss=pair.baseline.loss + random.normal(0, 0.004)),
            replace(pair.variant, loss=pair.variant.loss + random.normal(0, 0.004)),
        )
        estimate = speed_up(noisy, LAW, replace(CONFIG, seed_sigma=sigma))
        inside += estimate.low <= 1.2 <= estimate.high
    assert 0.86 < inside / 400 < 0.94


def bent(loss_at_1e18: float, factor: float, exponent: float) -> Callable[[float], float]:
    """A law beside the baseline's: another amplitude and exponent."""
    return lambda flops: 1.6 + (loss_at_1e18 - 1.6) * factor * (flops / 1e18) ** -exponent


@pytest.mark.parametrize("in_proportion", [False, True], ids=["nats", "proportional"])
@pytest.mark.parametrize("variant", ["faster", "other exponent"])
def test_intervals_hold_where_the_law_too_is_fitted_to_noisy_losses(variant: str, in_proportion: bool) -> None:
    """Noise in the minima, in both runs of every pair, and in the seed noise: constant in nats, or as the excess of a loss."""
    random, sigma, factor, count = np.random.default_rng(3), 0.004, 1.5, 400
    other = bent(LAW.at(1e18), 0.97, LAW.exponent + 0.003) if variant == "other exponent" else lambda c: LAW.at(factor * c)
    inside = dict.fromkeys([*BUDGETS, *GATES.projected], 0)

    def noisy(loss: float) -> float:
        return loss + random.normal(0, sigma) * ((loss - 1.6) / 1.5 if in_proportion else 1)

    for _ in range(count):
        minima = np.array([noisy(LAW.at(budget)) for budget in V16.budgets])
        config = replace(CONFIG, seed_sigma=sigma * np.sqrt(random.chisquare(8) / 8))
        measured = [
            Pair(size, Measured(noisy(LAW.at(flops)), flops, 1.0), Measured(noisy(other(flops)), flops, 1.0))
            for size, flops in BUDGETS.items()
        ]
        verdict = judge(measured, fit_pinned(V16.budgets, minima, 1.6), config)
        for each in verdict.speed_ups:
            budget = BUDGETS[each.size]
            truth = ((LAW.at(budget) - 1.6) / (other(budget) - 1.6)) ** (1 / LAW.exponent)
            inside[each.size] += each.low <= truth <= each.high
        for projection in verdict.projections:
            truth = other(projection.budget) - LAW.at(projection.budget)
            inside[projection.budget] += projection.low <= truth <= projection.high
    # A speed-up takes one noise for all sizes, so it is judged where that is so; a projection takes it from its own residuals.
    judged = GATES.projected if in_proportion else tuple(inside)
    assert all(0.86 < inside[place] / count < 0.94 for place in judged), inside


def test_unequal_compute_and_another_asymptote_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\+17.0 %"):
        Pair("d512", Measured(3.5, 1e18, 1.0), Measured(3.5, 1.17e18, 1.0))
    with pytest.raises(ValueError, match="asymptote"):
        judge(pairs(1.5), fit_pinned(V16.budgets, V16.losses, 1.5), CONFIG)
