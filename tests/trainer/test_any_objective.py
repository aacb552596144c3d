"""A step on another batch and objective than the next token: rows of any shape, microbatches, extra metrics."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model

from trainer.batch import Batch
from trainer.model.protocol import LanguageModel
from trainer.objectives import Sums, next_token_loss, token_log_probs
from trainer.step import OBJECTIVES, StepMetrics, StepState, compiled_step, initial_step_state, resolved_compute

SPEC = tiny_spec(model=tiny_model(num_layers=1))
TOKENS = np.random.default_rng(0).integers(0, 64, (4, 16)).astype(np.int32)


class Scored(NamedTuple):
    """Rows with a weight each, and an array of rank three that no next-token batch has."""

    tokens: jax.Array | np.ndarray
    gain: jax.Array | np.ndarray
    unused: jax.Array | np.ndarray


BATCH = Scored(TOKENS, np.array([1.0, 0.5, -2.0, 3.0], np.float32), np.zeros((4, 2, 3), np.float32))


def weighted(model: LanguageModel, batch: Scored, loads: object = None) -> tuple[jax.Array, Sums]:
    """Mean over rows of gain x log-probability, counted by rows."""
    of_rows = token_log_probs(model, jnp.asarray(batch.tokens)).sum(axis=1)
    value = -(batch.gain * of_rows).mean()
    return value, Sums(value, jnp.float32(len(of_rows)), extras={"log_prob": of_rows.mean(), "gain": jnp.mean(batch.gain)})


def test_log_probs_are_those_of_full_logits_of_each_segment() -> None:
    model = quick_model(SPEC.model)
    segments = np.repeat([[0, 1]], 8, axis=1).repeat(4, axis=0)
    found = jax.jit(partial(token_log_probs, temperature=0.7))(model, jnp.asarray(TOKENS), jnp.asarray(segments))
    alone = jax.nn.log_softmax(jax.jit(lambda tokens: model(tokens))(jnp.asarray(TOKENS[:, 8:])) / 0.7, axis=-1)
    wanted = np.take_along_axis(np.asarray(alone)[:, :-1], TOKENS[:, 9:, None], axis=2)[..., 0]
    np.testing.assert_allclose(found[:, 9:], wanted, rtol=1e-5, atol=1e-5)
    assert not np.asarray(found[:, 0]).any()


@cache
def stepped(size: int | None) -> tuple[StepState, StepMetrics]:
    """A step in microbatches of this size, compiled once."""
    spec, model = replace(SPEC, microbatch_size=size), quick_model(SPEC.model)
    return compiled_step(spec, model, objective=weighted)(initial_step_state(spec, model), BATCH, 3)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_step_is_the_same_in_microbatches(size: int) -> None:
    whole, parts = stepped(None), stepped(size)
    np.testing.assert_allclose(parts[1].norms[0], whole[1].norms[0], rtol=1e-4)  # of the gradient of every weight
    assert float(parts[1].extras["gain"]) == pytest.approx(0.625)
    assert float(parts[1].extras["log_prob"]) == pytest.approx(float(whole[1].extras["log_prob"]), rel=1e-5)
    assert float(parts[1].loss) == pytest.approx(float(whole[1].loss), rel=1e-5)


def test_the_objective_of_a_spec_without_one_is_the_next_token() -> None:
    model = quick_model(SPEC.model)
    compute = resolved_compute(SPEC, model)
    value, sums = OBJECTIVES[type(SPEC.objective)](SPEC, compute)(model, Batch(jnp.asarray(TOKENS)), None)
    wanted = next_token_loss(model, jnp.asarray(TOKENS), 0.0, compute=compute)[0]
    assert float(value) == float(wanted) == float(sums.loss)
    assert sums.extras is None
