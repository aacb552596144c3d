"""Loss weights: their effect on a loss, on a step, and on a run."""

from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_cross_entropy import inputs, obvious
from test_step import GOOD, SPEC, bits, model_of, state_with_row, step_of
from test_training import RUN, prepared

from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.token_shards import tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.batch import Batch
from trainer.model.cross_entropy import TILE_ROWS, weighted_objective
from trainer.objectives import next_token_loss
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

MASK = (np.arange(64).reshape(GOOD.shape) % 3 == 1).astype(np.float32)


@settings(max_examples=examples(6))
@given(st.sampled_from([3, TILE_ROWS + 5]), st.integers(0, 99), st.sampled_from([0.0, 0.2]))
def test_the_weighted_objective_is_that_of_full_logits(num_rows: int, seed: int, z_loss_weight: float) -> None:
    x, head, targets = inputs(num_rows, seed)
    shares = np.random.default_rng(seed).random(num_rows).astype(np.float32) * (np.arange(num_rows) % 3 > 0)
    shares /= shares.sum()
    nll, log_z = obvious(x, head, targets)
    (objective, loss), gradient = jax.jit(
        jax.value_and_grad(lambda x: weighted_objective(x, head, targets, jnp.asarray(shares), z_loss_weight), has_aux=True)
    )(x)
    assert float(loss) == pytest.approx(shares @ nll, rel=1e-5)
    assert float(objective) == pytest.approx(shares @ (nll + z_loss_weight * log_z**2), rel=1e-5)
    assert not np.asarray(gradient)[shares == 0].any(), "a row that does not count has a gradient"


def test_a_masked_loss_and_its_gradient_are_those_of_the_tokens_that_count() -> None:
    model, tokens = model_of(), jnp.asarray(GOOD)
    counted = jnp.asarray(MASK[:, 1:])

    @eqx.filter_jit
    @eqx.filter_grad
    def obvious_gradient(model):
        return (token_nll_by_logits(model, tokens) * counted).sum() / counted.sum()

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(model):
        return next_token_loss(model, tokens, 0.0, jnp.asarray(MASK))[0]

    for ours, theirs in zip(jax.tree.leaves(gradient(model)), jax.tree.leaves(obvious_gradient(model)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_weights_may_be_numpy_arrays() -> None:
    model, tokens = model_of(), jnp.asarray(GOOD)
    loss = jax.jit(lambda tokens, weights: next_token_loss(model, tokens, 0.0, weights)[1])
    of_numpy = jax.jit(lambda tokens: next_token_loss(model, tokens, 0.0, MASK)[1])
    assert float(loss(tokens, jnp.asarray(MASK))) == pytest.approx(float(of_numpy(tokens)), rel=1e-6)


def token_nll_by_logits(model, tokens):
    log_probabilities = jax.nn.log_softmax(model(tokens[:, :-1]), axis=-1)
    return -jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1)[..., 0]


def test_a_step_under_a_mask_does_not_see_masked_targets() -> None:
    """A sequence's last token is a target and never an input: masked, it may be anything, to the bit."""
    step = step_of(replace(SPEC, microbatch_size=1))
    mask = np.where(np.arange(16) == 15, 0, MASK).astype(np.float32)
    mask[2] = 0  # a microbatch in which nothing counts
    other = np.where(np.arange(16) == 15, (GOOD + 1) % 63, GOOD).astype(np.int32)
    (one, metrics), (two, _) = (step(state_with_row(0.1), Batch(tokens, mask), 0) for tokens in (GOOD, other))
    assert np.isfinite(float(metrics.loss)) and not bool(metrics.skipped)
    assert bits(one) == bits(two)
    (seen, _), (elsewhere, _) = (step(state_with_row(0.1), Batch(tokens, np.ones_like(mask)), 0) for tokens in (GOOD, other))
    assert bits(seen) != bits(elsewhere)


def test_a_batch_in_which_nothing_counts_gives_no_gradient() -> None:
    step = step_of(replace(SPEC, microbatch_size=1))
    _, metrics = step(state_with_row(0.1), Batch(GOOD, np.zeros(GOOD.shape, np.float32)), 0)
    assert (float(metrics.loss), float(metrics.grad_norm), bool(metrics.skipped)) == (0.0, 0.0, False)


@dataclass(frozen=True)
class Masked:
    """Random tokens in sequences of the run's length; `last` is added to each sequence's last token, which is masked."""

    last: int


def write_masked(out: Writer, config: Masked) -> None:
    length = RUN.seq_len
    tokens = np.random.default_rng(0).integers(0, 49, 60 * length)
    is_last = np.arange(tokens.size) % length == length - 1
    tokens = np.where(is_last, (tokens + config.last) % 50, tokens)
    weights = np.where(is_last | (np.arange(tokens.size) % 4 == 0), 0, 1).astype(np.uint8)
    shard = write_flat_shard(out.folder, "s", ["0" * 32], tokens, np.array([tokens.size]), "uint16", weights)
    out.facts["tokens"] = tokens_extra("text", "uint16", 50, "tok", None, None, [shard], weights="uint8")


MASKED = Stage("tests.masked", "1", write_masked)


@pytest.mark.slow
def test_a_run_learns_nothing_from_masked_tokens(tmp_path: Path) -> None:
    """Two caches that differ in every masked token that is a target alone give one checkpoint, to the bit."""
    short = replace(RUN, name="masked", num_steps=6, save_every_steps=6)
    models = []
    for last in (0, 1):
        cache = Node(("cache",), None, MASKED, Masked(last))
        mixture = Node(
            ("mixture",), None, MIXTURE, MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1), {"caches": (cache,)}
        )
        place = ("runs", "masked", "checkpoint"), step_partition(6)
        node = Node(*place, CHECKPOINT, CheckpointConfig(short, 6), {"mixture": mixture})
        artifact = build(prepared(tmp_path / str(last), node), node).artifact
        models.append([(f.path, f.digest) for f in artifact.manifest.files if f.path.endswith((".safetensors", ".parquet"))])
    assert models[0] == models[1]
