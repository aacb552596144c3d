"""Losses of preference optimization and of fine-tuning: equal to TRL's own code, and to the formulas by hand.

`golden/trl_preferences.json` was recorded by benchmarks/post_training/record_trl_preferences.py from TRL 1.16.0, torch 2.13.0.
"""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_spec
from tiny_models import quick_model

from lineage.config import from_jsonable, to_jsonable
from trainer.model.cross_entropy import weighted_objective
from trainer.preferences import Pairs, accuracy, pair_losses, side_lengths
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.objectives import Dpo
from trainer.step import compiled_step, initial_step_state

GOLDEN = json.loads((Path(__file__).parent / "golden" / "trl_preferences.json").read_text())
OURS = {
    "sigmoid": Dpo(beta=0.1),
    "sigmoid_sharp": Dpo(beta=2.0),
    "smoothed": Dpo(beta=0.5, label_smoothing=0.2),
    "ipo_by_length": Dpo(beta=0.3, loss="ipo", length_normalized=True),
    "sigmoid_by_length": Dpo(beta=0.7, length_normalized=True),
}
SPEC = tiny_spec(objective=Dpo(beta=0.5), start=WarmStart(), seq_len=32)


def of(name: str) -> jax.Array:
    return jnp.asarray(GOLDEN[name], jnp.float32)


@pytest.mark.parametrize("name", OURS)
def test_loss_and_gradient_are_those_of_trl(name: str) -> None:
    log_probs, mask, reference = of("log_probs"), of("mask"), of("reference")
    recorded = GOLDEN["dpo"][name]
    assert OURS[name].beta == recorded["beta"]

    def loss(log_probs: jax.Array) -> jax.Array:
        policy = (log_probs * mask).sum(axis=2)
        return pair_losses(OURS[name], policy, reference, side_lengths(mask.reshape(len(mask), -1))).loss.mean()

    value, gradient = jax.value_and_grad(loss)(log_probs)
    assert float(value) == pytest.approx(recorded["value"], abs=1e-5, rel=1e-6)
    np.testing.assert_allclose(gradient, recorded["gradient"], rtol=0, atol=1e-5)


def test_ipo_without_lengths_is_the_formula_of_its_paper() -> None:
    policy, reference = jnp.array([[-3.0, -5.0]]), jnp.array([[-4.0, -4.5]])
    losses = pair_losses(Dpo(beta=0.25, loss="ipo"), policy, reference, jnp.array([[7.0, 2.0]]))
    assert losses.loss.tolist() == [pytest.approx((1.5 - 2.0) ** 2)]
    assert losses.rewards.tolist() == [[0.25, -0.125]]


def test_fine_tuning_counts_as_trl_does() -> None:
    recorded = GOLDEN["sft"]
    logits = jnp.asarray(recorded["logits"], jnp.float32)
    tokens, mask = np.array(recorded["tokens"]), np.array(recorded["mask"])
    weights = np.roll(np.where(np.arange(tokens.shape[1]) == 0, 0, mask), -1, axis=1).reshape(-1)
    size = logits.shape[-1]

    def loss(logits: jax.Array) -> tuple[jax.Array, jax.Array]:  # the logits are the rows, the head leaves them as they are
        shares = jnp.asarray(weights / weights.sum(), jnp.float32)
        return weighted_objective(
            logits.reshape(-1, size), jnp.eye(size), jnp.roll(tokens, -1, axis=1).reshape(-1), shares, 0.0
        )

    (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(logits)
    assert float(value) == pytest.approx(recorded["value"], abs=1e-5)
    np.testing.assert_allclose(gradient, recorded["gradient"], rtol=0, atol=1e-5)


def test_ties_count_half() -> None:
    values = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert float(accuracy(values)) == 0.5
    assert float(accuracy(jnp.zeros((7, 2)))) == 0.5


def test_a_step_learns_the_preference_and_reports_it() -> None:
    model = quick_model(SPEC.model)
    random = np.random.default_rng(0)
    tokens = random.integers(0, 64, (4, 32)).astype(np.int32)
    weights = np.tile(np.arange(16) >= 8, (4, 2)).astype(np.float32)
    state, step = initial_step_state(SPEC, model), compiled_step(SPEC, model)
    batch = Pairs(tokens, weights, np.zeros((4, 2), np.float32))
    seen = []
    for number in range(12):
        state, metrics = step(state, batch, number)
        seen.append({name: float(value) for name, value in metrics.extras.items()})
        if number == 0:  # the policy's own log-probabilities, so that it starts at its reference
            assert seen[0]["chosen_reward"] == pytest.approx(0.5 * seen[0]["chosen_log_prob"], rel=1e-5)
    assert seen[-1]["accuracy"] == 1.0
    assert seen[-1]["margin"] > seen[0]["margin"] + 1
    assert seen[-1]["reference_log_prob_accuracy"] == 0.5


def test_a_spec_survives_json_and_says_what_is_wrong() -> None:
    assert from_jsonable(RunSpec, to_jsonable(SPEC)) == SPEC
    for changes, error in (
        ({"seq_len": 31}, "run.seq_len is 31; it must be even"),
        ({"seq_len": 34}, "in 4..32"),
        ({"start": None}, "run.start is None; it must be given with objective dpo"),
        ({"z_loss_weight": 0.1}, "run.z_loss_weight is 0.1"),
        ({"cross_document_attention": False}, "run.cross_document_attention is False"),
    ):
        with pytest.raises(ValueError, match=error):
            replace(SPEC, **changes)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"beta": 0.0}, "objective.beta is 0.0; it must be positive"),
        ({"beta": float("nan")}, "objective.beta is nan"),
        ({"label_smoothing": 0.5}, "objective.label_smoothing is 0.5; it must be at least 0 and below 0.5"),
        ({"loss": "hinge"}, "objective.loss is 'hinge'; it must be sigmoid or ipo"),
        ({"loss": "ipo", "label_smoothing": 0.1}, "it must be 0 for the loss ipo"),
    ],
)
def test_an_objective_says_what_is_wrong(changes: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Dpo(**changes)
