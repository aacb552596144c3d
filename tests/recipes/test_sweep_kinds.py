"""The declared kinds of sweeps compare what they say they compare."""

from collections import Counter
from dataclasses import replace

import pytest

from recipes.records.sweep import Sweep
from recipes.studies.beta2_by_batch import beta2_by_batch
from recipes.studies.critical_batch import critical_batch
from recipes.studies.depth_by_width import BUDGET, depth_by_width
from recipes.studies.isoflop import BUDGETS, isoflop, isoflop_5x
from recipes.studies.small_models import rates_by_width, small_model
from recipes.sweeps import critical_batch as critical_batch_of
from recipes.sweeps import results
from science.trials import FLOP_TOLERANCE
from trainer.spec.target import size_of


def test_trials_of_the_isoflop_sweep_take_their_budget_and_centres_have_three_seeds() -> None:
    sweep = isoflop()
    for trial, budget in zip(sweep.trials, sweep.declared_budgets, strict=True):
        assert size_of(trial.spec).flops == pytest.approx(budget, rel=FLOP_TOLERANCE), trial.name
    sizes = Counter((budget, trial.spec.model.hidden_dim) for trial, budget in zip(sweep.trials, sweep.budgets, strict=True))
    assert sorted(sizes.values()) == [1] * 20 + [3] * 4
    assert size_of(isoflop_5x().spec).flops == pytest.approx(5 * max(BUDGETS), rel=FLOP_TOLERANCE)


@pytest.mark.parametrize("sweep", [rates_by_width(), critical_batch(), beta2_by_batch()], ids=lambda sweep: sweep.name)
def test_trials_of_other_sweeps_read_equal_tokens(sweep: Sweep) -> None:
    tokens = [size_of(trial.spec).tokens for trial in sweep.trials]
    assert max(tokens) == min(tokens)


def test_every_batch_of_the_critical_batch_shows_the_noise_of_its_gradients_which_its_fit_reads() -> None:
    sweep = critical_batch()
    parts = {trial.spec.batches.size(0) // trial.spec.microbatch_size for trial in sweep.trials if trial.spec.microbatch_size}
    assert all(trial.spec.gradient_noise for trial in sweep.trials) and parts == {2, 4, 8}
    fitted = critical_batch_of(sweep)
    assert fitted.inputs["results"] == results(sweep) and "results" not in critical_batch_of(silent(sweep)).inputs


def silent(sweep: Sweep) -> Sweep:
    """The sweep without the noise of its gradients."""
    trials = tuple(replace(trial, spec=replace(trial.spec, gradient_noise=False)) for trial in sweep.trials)
    return replace(sweep, trials=trials)


def test_depths_are_compared_at_equal_flops() -> None:
    for trial in depth_by_width().trials:
        assert size_of(trial.spec).flops == pytest.approx(BUDGET, rel=FLOP_TOLERANCE), trial.name


def test_a_width_outside_the_family_is_refused() -> None:
    with pytest.raises(ValueError, match="width is 40; the family has 16, 24"):
        small_model(40)
