"""Critical batch and law of repetition: planted truths lie in the intervals as often as promised, other data are refused."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import trial_at

from science.critical_batch import batch_law, best_rates, fit_batches
from science.laws.calibrate import two_terms
from science.laws.fit import Fit, fit
from science.laws.forms import CHINCHILLA
from science.laws.simulate import design, known_laws, simulate
from science.repetition import effective_tokens, fit_repetition
from science.trials import RefusedSweepError, Trial

BATCHES = np.array([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536.0])
CRITICAL, SMALL, REDUCIBLE, EXPONENT = 9000.0, 3.0, 0.9, 0.28


def planted(batch: np.ndarray) -> np.ndarray:
    return SMALL + REDUCIBLE * ((1 + batch / CRITICAL) ** EXPONENT - 1)


def test_the_interval_of_a_critical_batch_holds_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    every = [fit_batches(BATCHES, planted(BATCHES) + random.normal(0, 0.004, 8), EXPONENT) for _ in range(400)]
    held = [(each.low or 0) <= CRITICAL <= (each.high or np.inf) for each in every]
    assert 0.86 <= np.mean(held) <= 0.94
    assert abs(np.median([np.log(each.batch / CRITICAL) for each in every])) < 0.1
    assert abs(np.median([each.spread for each in every]) / 0.004 - 1) < 0.15


def test_a_fit_without_noise_finds_what_was_planted() -> None:
    found = fit_batches(BATCHES, planted(BATCHES), EXPONENT)
    assert found.batch == pytest.approx(CRITICAL, rel=0.03)
    assert (found.small_loss, found.reducible) == (pytest.approx(SMALL, abs=0.01), pytest.approx(REDUCIBLE, rel=0.03))
    np.testing.assert_allclose(found.loss(BATCHES), planted(BATCHES), atol=1e-3)


def test_small_batches_bound_the_critical_one_from_below_alone() -> None:
    """All batches far below the critical one: losses rise on a line, and any larger critical batch fits as well."""
    random = np.random.default_rng(3)
    batches = np.geomspace(100, 3000, 8)
    found = fit_batches(batches, planted(batches) + random.normal(0, 0.002, 8), EXPONENT)
    assert found.high is None and found.low is not None and found.low < CRITICAL


@pytest.mark.parametrize(
    ("losses", "fault"),
    [(3 - 0.01 * np.arange(8.0), "no_loss_of_batch"), (3 + np.array([0, 1, 0, 1, 0, 1, 0, 1.1]), "undecided_batch")],
)
def test_batches_that_say_nothing_are_refused(losses: np.ndarray, fault: str) -> None:
    with pytest.raises(RefusedSweepError, match=fault):
        fit_batches(BATCHES, losses, EXPONENT)


def rated(batch: float, rate: float, **changed: object) -> Trial:
    """A trial whose loss is lowest at a rate of sqrt(batch) / 20,000."""
    best = np.sqrt(batch) / 20_000
    loss = float(planted(np.array(batch)) + 0.02 * np.log(rate / best) ** 2)
    fields = {"batch_tokens": int(batch), "learning_rate": rate, "loss": loss} | changed
    return trial_at(f"b{batch:g}-lr{rate:g}", **fields)


def swept(multiples: tuple[float, ...] = (0.4, 0.9, 2.0)) -> list[Trial]:
    return [rated(batch, multiple * np.sqrt(batch) / 20_000) for batch in BATCHES for multiple in multiples]


def test_each_batch_is_judged_at_its_own_best_rate() -> None:
    points = best_rates([*swept(), rated(512, 1.0, loss=None)])
    np.testing.assert_allclose([point.loss for point in points], planted(BATCHES), atol=1e-9)
    np.testing.assert_allclose([point.rate for point in points], np.sqrt(BATCHES) / 20_000, rtol=1e-6)


@pytest.mark.parametrize(
    ("trials", "fault"),
    [
        (swept((0.1, 0.2, 0.4)), "edge_rate: the best rate of batch 512"),
        (swept((0.9, 2.0)), "too_few_rates: batch 512 has 2"),
        (swept()[:12], "too_few_batches: 4 of at least 5"),
        ([*swept(), replace(swept()[0], name="long", tokens=7e6)], "unequal_tokens: from 6e\\+06 to 7e\\+06"),
        ([*swept(), replace(swept()[0], name="wide", parameters=5)], "mixed_sizes: 5, 27648 parameters"),
        ([*swept(), replace(swept()[0], name="other", policy="q")], "mixed_policies"),
    ],
)
def test_a_sweep_of_batches_that_cannot_be_compared_is_refused(trials: list[Trial], fault: str) -> None:
    with pytest.raises(RefusedSweepError, match=fault):
        best_rates(trials)


def test_the_exponent_of_critical_batches_holds_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    tokens = np.geomspace(1e6, 1e8, 5)
    laws = [batch_law(tokens, 3.0 * tokens**0.47 * np.exp(random.normal(0, 0.2, 5))) for _ in range(400)]
    assert 0.86 <= np.mean([law.low <= 0.47 <= law.high for law in laws]) <= 0.94
    exact = batch_law(tokens, 3.0 * tokens**0.47)
    assert (exact.amplitude, exact.exponent) == (pytest.approx(3.0), pytest.approx(0.47))
    with pytest.raises(ValueError, match="2 token counts; a law needs at least 3"):
        batch_law(tokens[:2], tokens[:2])


STAR, NOISE = 6.0, 0.004
REPEATS = [(size, 0.4e6, epochs) for size in (62_000.0, 154_000.0) for epochs in (2.0, 4.0, 8.0, 16.0, 32.0)]


def repeated(random: np.random.Generator, star: float = STAR, sets: int = 1) -> list[tuple[Fit, tuple[np.ndarray, ...]]]:
    """Base laws of simulated sweeps, and for each law runs that repeat 400,000 unique tokens."""
    law = known_laws()[1]
    base = fit(CHINCHILLA, simulate(law.loss, design(), sets, NOISE, random))
    parameters, unique, epochs = (np.array(column) for column in zip(*REPEATS, strict=True))
    truth = law.loss(parameters, effective_tokens(unique * epochs, unique, star))
    drawn = truth + two_terms(random, NOISE, (sets, len(REPEATS)))
    return [(one_of(base, number), (parameters, unique * epochs, epochs, losses)) for number, losses in enumerate(drawn)]


def one_of(base: Fit, number: int) -> Fit:
    """The fit of one data set of many."""
    own = ("parameters", "covariance", "spread", "freedom", "lack_of_fit", "converged")
    return replace(base, **{name: getattr(base, name)[[number]] for name in own})


@pytest.mark.parametrize("sets", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_the_interval_of_repetition_holds_as_often_as_it_says(sets: int) -> None:
    found, refused = [], 0
    for base, runs in repeated(np.random.default_rng(2), sets=sets):
        try:
            found.append(fit_repetition(base, *runs))
        except RefusedSweepError:
            refused += 1
    held = [(each.low or 0) <= STAR <= (each.high or np.inf) for each in found]
    assert 0.85 <= np.mean(held) <= 0.95 and refused <= 0.03 * sets
    assert abs(np.median([np.log(each.constant / STAR) for each in found])) < 0.1


def test_repeats_that_count_as_new_have_no_upper_end() -> None:
    ((base, runs),) = repeated(np.random.default_rng(6), star=1e5)
    found = fit_repetition(base, *runs)
    assert found.high is None and found.low is not None and found.low > STAR


def test_tokens_that_repeat_nothing_are_worth_themselves_and_no_number_of_repeats_exceeds_the_limit() -> None:
    assert effective_tokens(1e6, 1e6, 15.4) == pytest.approx(1e6) == effective_tokens(1e6, 2e6, 15.4)
    assert effective_tokens(4e6, 1e6, 15.4) == pytest.approx(3.73e6, rel=0.01), "four epochs are almost as good as new data"
    assert effective_tokens(1e12, 1e6, 15.4) == pytest.approx(16.4e6)


def test_runs_that_tell_nothing_of_repetition_are_refused() -> None:
    ((base, (parameters, tokens, epochs, losses)),) = repeated(np.random.default_rng(5))
    with pytest.raises(RefusedSweepError, match="too_few_repeated: 3 of at least 4"):
        fit_repetition(base, parameters[:3], tokens[:3], epochs[:3], losses[:3])
    same = epochs == 8.0
    with pytest.raises(RefusedSweepError, match=r"too_few_epochs: the runs repeat \[8.0\] times"):
        fit_repetition(base, *(np.repeat(column[same], 2) for column in (parameters, tokens, epochs, losses)))
    with pytest.raises(RefusedSweepError, match="not_the_law_of_repetition"):
        fit_repetition(base, parameters, tokens, epochs, losses + 0.1 * (-1) ** np.arange(len(losses)))
