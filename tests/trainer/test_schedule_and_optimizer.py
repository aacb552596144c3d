"""The learning rate at its corners, what decay spares, and a guard that leaves a bad step no trace."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import AdamWConfig, LlamaConfig, RunSpec, WarmupStableDecay
from trainer.model import Llama, loss_fn
from trainer.optimizer import build_optimizer, decay_mask, learning_rate
from trainer.train import compiled_step, initial_state

SPEC = RunSpec(
    name="guard",
    model=LlamaConfig(
        vocab_size=64,
        hidden_dim=32,
        intermediate_dim=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        max_seq_len=16,
        tie_embeddings=False,
    ),
    optimizer=AdamWConfig(),
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=2, decay_frac=0.5),
    batch_size=4,
    seq_len=16,
    num_steps=60,
    seed=0,
    save_every_steps=60,
)
RARE = 63
"""A token that no ordinary batch holds, so its embedding decides whether a batch is bad."""
GOOD = np.random.default_rng(0).integers(0, RARE, (4, 16)).astype(np.int32)
BAD = np.where(np.arange(16) == 5, RARE, GOOD).astype(np.int32)


def bits(*trees: object) -> list[bytes]:
    """Every leaf's bytes: a comparison that tells -0.0 from 0.0 and one NaN from another."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(trees)]


@functools.cache
def shared_step():
    """The static part of the model and one compiled step for the whole module: compiling is what costs."""
    model = initial_state(SPEC).model
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    return static, compiled_step(SPEC, build_optimizer(SPEC, model), static)


def steps_with_row(row: float):
    """Parameters with the rare token's embedding all `row`, a fresh optimizer state, the static part and the step."""
    state = initial_state(SPEC)
    dynamic = eqx.filter(state.model, eqx.is_inexact_array)
    return (eqx.tree_at(lambda m: m.embedding.array, dynamic, dynamic.embedding.array.at[RARE].set(row)), state.optimizer,
            *shared_step())  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.floats(0, 1), st.floats(1e-5, 1))
def test_the_rate_climbs_holds_and_falls(warmup, plateau, decay, floor, peak) -> None:
    total = warmup + plateau + decay
    schedule = WarmupStableDecay(peak, warmup, decay / total, floor)
    rates = [float(learning_rate(schedule, total, step)) for step in range(total)]
    falling = [peak * (floor + (1 - floor) * (decay - i) / decay) for i in range(decay)]
    wanted = [peak * (step + 1) / warmup for step in range(warmup)] + [peak] * plateau + falling
    assert rates == pytest.approx(wanted, rel=1e-5)


def test_a_rate_without_decay_stays_at_the_peak() -> None:
    schedule = WarmupStableDecay(peak_learning_rate=0.5, warmup_steps=0, decay_frac=0.0)
    assert [float(learning_rate(schedule, 10, step)) for step in (0, 5, 9)] == pytest.approx([0.5] * 3)


def test_decay_touches_the_matrices_and_neither_norms_nor_embedding() -> None:
    model = Llama.init(SPEC.model, key=jax.random.PRNGKey(0))
    optimizer = build_optimizer(SPEC, model)
    parameters = eqx.filter(model, eqx.is_inexact_array)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    updates, _ = optimizer.update(zeros, optimizer.init(parameters), parameters)  # without gradients, decay is all there is
    moved = dict(jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda u: bool(jnp.any(u != 0)), updates)))
    names = {jax.tree_util.keystr(path): flag for path, flag in moved.items()}
    flags = jax.tree_util.tree_leaves_with_path(decay_mask(model))
    assert names == {jax.tree_util.keystr(path): flag for path, flag in flags}
    assert {name for name, flag in names.items() if not flag} == {n for n in names if "norm" in n or "embedding" in n}
    assert sum(names.values()) == 8  # four of attention, three of the MLP, the untied head
    decayed = [u for u, f in zip(jax.tree.leaves(updates), jax.tree.leaves(decay_mask(model)), strict=True) if f]
    weights = [p for p, f in zip(jax.tree.leaves(parameters), jax.tree.leaves(decay_mask(model)), strict=True) if f]
    for update, weight in zip(decayed, weights, strict=True):
        np.testing.assert_allclose(update, SPEC.optimizer.weight_decay * weight, rtol=1e-6)


def test_gradients_are_clipped_to_their_norm() -> None:
    dynamic, optimizer_state, static, step = steps_with_row(0.0)
    big = eqx.tree_at(lambda m: m.norm.weight.array, dynamic, dynamic.norm.weight.array * 1000.0)
    gradients = jax.grad(lambda p: loss_fn(eqx.combine(p, static), jnp.asarray(GOOD), 0.0)[0])(big)
    squares = sum(float(np.square(np.asarray(g, np.float64)).sum()) for g in jax.tree.leaves(gradients))
    _, state, (_, _, norm, skipped) = step(big, optimizer_state, GOOD, 0)
    assert not bool(skipped)
    assert float(norm) == pytest.approx(squares**0.5, rel=1e-4)  # what is reported is the norm before the clip
    assert squares**0.5 > SPEC.optimizer.max_grad_norm
    mu = next(part for part in state if hasattr(part, "mu")).mu  # after one step: (1 - beta1) times the clipped gradient
    clipped = sum(float(np.square(np.asarray(m, np.float64)).sum()) for m in jax.tree.leaves(mu)) ** 0.5
    assert clipped == pytest.approx((1 - SPEC.optimizer.beta1) * SPEC.optimizer.max_grad_norm, rel=1e-3)


@pytest.mark.parametrize("row", [np.nan, np.inf, -np.inf])
def test_a_bad_batch_between_good_ones_leaves_no_bit(row: float) -> None:
    dynamic, optimizer_state, _, step = steps_with_row(row)
    dynamic, optimizer_state, (loss, *_) = step(dynamic, optimizer_state, GOOD, 0)
    assert np.isfinite(float(loss))
    before = bits(dynamic, optimizer_state)
    dynamic, optimizer_state, (loss, _, _, skipped) = step(dynamic, optimizer_state, BAD, 1)
    assert bool(skipped) and not np.isfinite(float(loss))
    assert bits(dynamic, optimizer_state) == before
    dynamic, optimizer_state, (loss, _, _, skipped) = step(dynamic, optimizer_state, GOOD, 2)
    assert np.isfinite(float(loss)) and not bool(skipped)
    assert bits(dynamic, optimizer_state) != before


def test_a_gradient_that_is_not_finite_is_skipped_though_its_loss_is() -> None:
    dynamic, optimizer_state, _, step = steps_with_row(0.0)
    # Values near float32's end, multiplied by nought on the way up and by a steep slope on the way down.
    edge = eqx.tree_at(lambda m: m.blocks.stacked.attention.w_v.array, dynamic, replace_fn=lambda w: w * 1e37)
    edge = eqx.tree_at(lambda m: m.blocks.stacked.attention.w_o.array, edge, replace_fn=jnp.zeros_like)
    edge = eqx.tree_at(lambda m: m.norm.weight.array, edge, replace_fn=lambda w: w * 1e4)
    before = bits(edge, optimizer_state)
    edge, optimizer_state, (loss, _, norm, skipped) = step(edge, optimizer_state, GOOD, 0)
    assert np.isfinite(float(loss)) and not np.isfinite(float(norm))
    assert bool(skipped)
    assert bits(edge, optimizer_state) == before
