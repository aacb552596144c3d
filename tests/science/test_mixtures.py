"""Mixture search: designs within caps, regret on known surfaces against RegMix, honest gains, confirmation by fresh seeds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from science.mixtures.crossed import crossed, scaled
from science.mixtures.designs import caps, split, swarm, within
from science.mixtures.evidence import confirm, signal_to_noise
from science.mixtures.next_round import APART, NextMixtures, distinct, next_round
from science.mixtures.propose import ProposalConfig, propose, regmix_proposal
from science.mixtures.surfaces import KnownSurface, known_surface
from science.mixtures.surrogates import SURROGATES

NOISE = 0.0016
SEARCH = ProposalConfig()


def runs(surface: KnownSurface, count: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A swarm on a known surface."""
    weights = swarm(surface.prior, surface.limits, count, seed)
    random = np.random.default_rng(seed)
    return weights, {name: metric(weights) + random.normal(0, NOISE, count) for name, metric in surface.metrics.items()}


def test_designs_are_mixtures_within_caps_and_repeat_by_seed() -> None:
    prior = np.array([0.6, 0.3, 0.08, 0.02])
    limits = caps(np.array([6e6, 3e6, 8e5, 2e5]), 1e7, 4)
    designs = swarm(prior, limits, 40, 3)
    np.testing.assert_allclose(designs.sum(axis=1), 1)
    assert (designs <= limits + 1e-9).all() and (designs >= 0).all()
    assert limits[3] == pytest.approx(0.08) and designs[:, 0].max() > 0.9
    np.testing.assert_array_equal(designs, swarm(prior, limits, 40, 3))


def test_what_a_cap_cuts_goes_to_the_others_in_proportion() -> None:
    np.testing.assert_allclose(within(np.array([0.8, 0.15, 0.05]), np.array([0.4, 1.0, 1.0])), [[0.4, 0.45, 0.15]])


def test_impossible_swarms_are_refused() -> None:
    with pytest.raises(ValueError, match="allow more epochs"):
        caps(np.array([1e6, 1e6]), 1e8, 4)
    with pytest.raises(ValueError, match="give at least 6"):
        swarm(np.full(4, 0.25), np.ones(4), 5, 0)
    with pytest.raises(ValueError, match="is in no design"):
        propose(np.tile([1.0, 0.0], (5, 1)), {"m": np.ones(5)}, np.array([1.0, 0.0]), np.ones(2), SEARCH)


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("log_linear", "quadratic")]


@pytest.mark.parametrize("kind", [*SLOW, "interaction"])
def test_regret_is_below_a_tenth_of_the_gap_and_below_regmix(kind) -> None:
    """One surface of each kind; the mean over 50 is `python -m benchmarks.science.mixtures`."""
    surface = known_surface(kind, 8, 0)
    weights, metrics = runs(surface, 50, 0)
    proposal = propose(weights, metrics, surface.prior, surface.limits, SEARCH)
    ours = surface.regret(np.array(proposal.weights))
    peer = surface.regret(regmix_proposal(weights, metrics, surface.prior, surface.limits, 0, candidates=5000))
    assert ours < 0.1 and ours < peer
    assert sum(proposal.weights) == pytest.approx(1) and (np.array(proposal.weights) <= surface.limits + 1e-9).all()
    assert proposal.low < proposal.gain < proposal.high


def test_the_error_of_a_predicted_gain_is_that_of_the_gain_over_surfaces() -> None:
    """12 surfaces of two kinds. The benchmark measures whether .85 to .95 of 90 % intervals hold."""
    errors = []
    for kind, seed in product(("log_linear", "interaction"), range(6)):
        surface = known_surface(kind, 4, seed)
        weights, metrics = runs(surface, 30, seed)
        proposal = propose(weights, metrics, surface.prior, surface.limits, ProposalConfig())
        truth = surface.mean(np.stack([surface.prior, np.array(proposal.weights)]))
        errors.append((truth[0] - truth[1] - proposal.gain) / (proposal.high - proposal.gain))
    assert 0.35 < np.sqrt(np.mean(np.square(errors))) < 0.9, np.round(errors, 2)  # 1 / t(.95) is .59 if each is calibrated
    assert np.mean(np.abs(errors) < 1) > 0.75


def test_crossed_terms_are_kriging_with_the_law_as_trend() -> None:
    """At fixed variances, mean and error are those of the textbook's joint normal of law, terms and noise."""
    surface = known_surface("interaction", 4, 3)
    weights, metrics = runs(surface, 30, 3)
    fitted = crossed(weights, metrics["m0"])
    assert fitted.deviations[1] > 0
    covariance = np.eye(30) + fitted.terms @ fitted.terms.T
    weight_of_runs = np.linalg.solve(covariance, metrics["m0"] - fitted.law(weights))
    asked = np.stack([surface.prior, surface.optimum])
    new = scaled(asked, fitted.deviations) - fitted.centre
    shared = new @ fitted.terms.T
    np.testing.assert_allclose(fitted(asked), fitted.law(asked) + shared @ weight_of_runs, atol=1e-9)
    there, here = fitted.law.derivatives(asked), fitted.law.derivatives(weights)
    precision = here.T @ np.linalg.solve(covariance, here) + fitted.information - fitted.slopes.T @ fitted.slopes
    trend = there - shared @ np.linalg.solve(covariance, here)
    joint = new @ new.T - shared @ np.linalg.solve(covariance, shared.T)
    joint = joint + trend @ np.linalg.solve(precision, trend.T)
    expected = fitted.noise * np.sqrt(joint[0, 0] + joint[1, 1] - 2 * joint[0, 1])
    assert fitted.deviation(*asked) == pytest.approx(expected, rel=1e-3)
    assert 0.5 < fitted.noise / NOISE < 2


def test_metrics_that_fail_together_have_a_wider_gain_than_metrics_that_fail_apart() -> None:
    surface = known_surface("log_linear", 4, 2)
    weights = swarm(surface.prior, surface.limits, 30, 2)
    level, ratios = surface.metrics["m0"](weights), []
    for seed in range(5):
        one, other = np.random.default_rng(seed).normal(0, 0.002, (2, 30))
        apart, together = (
            propose(weights, {"a": level + one, "b": level + noise}, surface.prior, surface.limits, ProposalConfig())
            for noise in (other, one)
        )
        ratios.append((together.high - together.low) / (apart.high - apart.low))
    assert 1.2 < np.median(ratios) < 1.7, ratios  # the root of 2 where both fits have the same errors


def test_a_second_round_lies_at_the_optimum_where_the_runs_determine_it_and_apart_where_they_do_not() -> None:
    surface = known_surface("log_linear", 4, 2)
    weights = swarm(surface.prior, surface.limits, 24, 2)
    rounds = {}
    for noise in (0.0, 0.1):
        random = np.random.default_rng(2)
        metrics = {name: metric(weights) + random.normal(0, noise, 24) for name, metric in surface.metrics.items()}
        asked = NextMixtures(4, apart=(0.0, 0.5))
        rounds[noise] = next_round(weights, metrics, surface.prior, surface.limits, asked, 3)
        again = next_round(weights, metrics, surface.prior, surface.limits, asked, 3)
        np.testing.assert_array_equal(rounds[noise].weights, again.weights)
    for each in rounds.values():
        np.testing.assert_allclose(each.weights.sum(axis=1), 1)
        assert (each.weights <= surface.limits + 1e-9).all() and (each.weights >= 0).all()
    sure, unsure = (np.abs(each.weights - each.optimum).sum(axis=1) for each in rounds.values())
    assert sure[::2].max() < 0.05 < unsure[::2].mean(), "the first of a draw lies at its lowest point, the second on the way"
    assert sure[1::2].min() > 0.05
    assert surface.regret(rounds[0.0].optimum) < 0.02 and rounds[0.0].spread.mean() < rounds[0.1].spread.mean()


@given(
    st.integers(2, 9), st.integers(1, 24), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 24]), st.sampled_from([1.2, 2, 9])
)
def test_no_two_mixtures_of_a_round_are_one(sources: int, count: int, seed: int, different: int, room: float) -> None:
    """Many start at one place: of `count` trials only `different` are drawn apart."""
    random = np.random.default_rng(seed)
    limits = np.minimum(1, random.dirichlet(np.ones(sources)) * room + 0.4)  # room for 24 mixtures whatever the draw
    designs = within(random.dirichlet(np.ones(sources), 30), limits)
    chosen = within(random.dirichlet(np.ones(sources), different), limits)[np.arange(count) % different]
    others = random.integers(0, len(designs), count)
    made = distinct(chosen, others, designs, limits)
    np.testing.assert_allclose(made.sum(axis=1), 1)
    assert (made <= limits + 1e-9).all() and (made >= -1e-12).all()
    apart = 0.5 * np.abs(made[:, None] - made).sum(axis=-1) + np.eye(count)
    assert apart.min() >= APART
    near = [trial for trial in range(1, count) if 0.5 * np.abs(chosen[trial] - made[:trial]).sum(axis=1).min() < APART]
    kept = np.setdiff1d(np.arange(count), near)
    np.testing.assert_array_equal(made[kept], chosen[kept], "only what is too close to one before it is moved")
    np.testing.assert_array_equal(made, distinct(chosen, others, designs, limits))


def test_more_trials_than_there_are_mixtures_are_refused() -> None:
    only = np.array([[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"no place for trial 2 of 3 that differs from the others in 0.5% of the tokens"):
        distinct(np.tile(only, (3, 1)), np.zeros(3, int), np.tile([0.9, 0.1], (4, 1)), np.array([0.5, 0.5]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "count is 0"),
        ({"apart": ()}, r"apart is \(\)"),
        ({"apart": (0.0, 1.5)}, r"apart is \(0.0, 1.5\)"),
    ],
)
def test_a_second_round_that_cannot_be_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NextMixtures(**({"count": 4} | change))


def test_splitting_a_source_maps_old_evidence_exactly() -> None:
    """A log-linear law on split designs gives the predictions that it gave before."""
    surface = known_surface("log_linear", 4, 0)
    weights, metrics = runs(surface, 30, 0)
    parted = split(weights, 2, {"a": 300, "b": 100})
    np.testing.assert_allclose(parted[:, 2] + parted[:, 3], weights[:, 2])
    np.testing.assert_allclose(parted[:, 2], 3 * parted[:, 3])
    before = SURROGATES["log_linear"](weights, metrics["m0"])(weights)
    after = SURROGATES["log_linear"](parted, metrics["m0"])(parted)
    np.testing.assert_allclose(after, before, atol=2e-4)


def test_noise_is_taken_from_the_worst_anchor() -> None:
    ratio_of = signal_to_noise("code", [1.0, 1.1, 1.2], {"proportional": [1.0, 1.0016], "corner": [1.0, 1.041]})
    assert (
        ratio_of.ratio == pytest.approx(ratio_of.signal / ratio_of.noise["corner"]) and ratio_of.noise["proportional"] < 0.002
    )
    assert ratio_of.runs_for(0.041) < ratio_of.runs_for(0.01)
    with pytest.raises(ValueError, match="at least two"):
        signal_to_noise("code", [1.0], {"proportional": [1.0]})


def test_only_paired_fresh_seeds_confirm() -> None:
    random = np.random.default_rng(0)
    shared = {seed: float(random.normal(0, 0.05)) for seed in range(10, 16)}
    other = {seed: 1 + value for seed, value in shared.items()}
    better = {seed: 0.99 + value + random.normal(0, 0.002) for seed, value in shared.items()}
    assert confirm("proportional", better, other, [1, 2]).verdict == "beats"
    assert confirm("proportional", other, better, [1, 2]).verdict == "loses"
    noisy = {seed: value + 0.002 * (-1) ** seed for seed, value in other.items()}
    tie = confirm("uniform", noisy, other, [1, 2])
    assert tie.verdict == "ties" and tie.low <= 0 <= tie.high and tie.smallest_visible > abs(tie.gain)
    with pytest.raises(ValueError, match=r"used before: \[10\]"):
        confirm("proportional", better, other, [10])
    with pytest.raises(ValueError, match="at least 6"):
        confirm("proportional", {1: 1.0}, {1: 1.0}, [])
