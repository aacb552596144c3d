"""One compiled step: weight decay groups, skipped bad steps, microbatches equal to the whole batch."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model

from trainer.batch import Batch
from trainer.model.transformer import Transformer
from trainer.objectives import Sums, next_token_loss
from trainer.optimizers.build import build_optimizer
from trainer.optimizers.groups import decay_mask
from trainer.spec.config import RunSpec
from trainer.spec.optimizers import (
    AdamCConfig,
    AdamHConfig,
    AdamWConfig,
    CautiousConfig,
    ClipUpdateNormConfig,
    EmaConfig,
    LionConfig,
    MuonConfig,
    NAdamWConfig,
    OptimizerConfig,
    SkipBadStepsConfig,
)
from trainer.step import StepState, accumulated_gradients, compiled_step, initial_step_state

SPEC = tiny_spec(name="guard", model=tiny_model(tie_embeddings=False, num_layers=1), num_steps=60, save_every_steps=60)
WATCHED = replace(SPEC, skip_bad_steps=SkipBadStepsConfig(window=8, num_std=6.0, std_floor=1e-3), ema=EmaConfig(0.75))
"""For the tests of jumps and of the average: one compiled step for both."""
RARE = 63
"""A token that no ordinary batch holds, so its embedding decides whether a batch is bad."""
GOOD = np.random.default_rng(0).integers(0, RARE, (4, 16)).astype(np.int32)
BAD = np.where(np.arange(16) == 5, RARE, GOOD).astype(np.int32)
RULES: tuple[OptimizerConfig, ...] = (
    NAdamWConfig(), AdamCConfig(), AdamHConfig(), MuonConfig(), LionConfig(),
    CautiousConfig(AdamWConfig()), CautiousConfig(LionConfig()),
)  # fmt: skip


def bits(*trees: object) -> list[bytes]:
    """Return every leaf's bytes, which distinguish -0.0 from 0.0 and one NaN from another."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(trees)]


def model_of(spec: RunSpec = SPEC) -> Transformer:
    return quick_model(spec.model, spec.seed)


@functools.cache
def step_of(spec: RunSpec):
    """One compiled step a spec for the whole module: compiling is what costs."""
    return compiled_step(spec, model_of(spec))


def state_with_row(row: float, spec: RunSpec = SPEC) -> StepState:
    """A fresh state with the rare token's embedding all `row`."""
    state = initial_step_state(spec, model_of(spec))
    return edited(state, lambda m: m.embedding.array, lambda e: e.at[RARE].set(row))


def edited(state: StepState, where, change) -> StepState:
    return state._replace(parameters=eqx.tree_at(where, state.parameters, replace_fn=change))


def test_decay_touches_the_matrices_and_neither_norms_nor_embedding() -> None:
    model = model_of()
    optimizer = build_optimizer(SPEC, model)
    parameters = eqx.filter(model, eqx.is_inexact_array)
    zeros = jax.tree.map(np.zeros_like, parameters)
    updated = jax.jit(lambda p: optimizer.update(zeros, optimizer.init(p), p, rate=1.0)[0])
    updates = updated(parameters)  # decay is all there is
    flags = dict(jax.tree_util.tree_leaves_with_path(decay_mask(model, SPEC.optimizer.decay_groups)))
    weights = dict(jax.tree_util.tree_leaves_with_path(parameters))
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        np.testing.assert_allclose(update, SPEC.optimizer.weight_decay * weights[path] * flags[path], rtol=1e-6)
    names = {jax.tree_util.keystr(path): flag for path, flag in flags.items()}
    assert {name for name, flag in names.items() if not flag} == {n for n in names if "norm" in n or "embedding" in n}
    assert sum(names.values()) == 8  # four of attention, three of the MLP, the untied head


def test_gradients_are_clipped_to_their_norm() -> None:
    state = edited(state_with_row(0.0), lambda m: m.norm.weight.array, lambda w: w * 1000.0)
    static = eqx.partition(model_of(), eqx.is_inexact_array)[1]
    gradients = jax.jit(jax.grad(lambda p: next_token_loss(eqx.combine(p, static), GOOD, 0.0)[0]))(state.parameters)
    norm = sum(float(np.square(np.asarray(g, np.float64)).sum()) for g in jax.tree.leaves(gradients)) ** 0.5
    state, metrics = step_of(SPEC)(state, Batch(GOOD), 0)
    assert not bool(metrics.skipped)
    assert float(metrics.grad_norm) == pytest.approx(norm, rel=1e-4)  # what is reported is the norm before the clip
    assert norm > SPEC.optimizer.max_grad_norm
    mu = next(part for part in state.optimizer if hasattr(part, "mu")).mu  # after one step: (1 - beta1) times the clipped one
    clipped = sum(float(np.square(np.asarray(m, np.float64)).sum()) for m in jax.tree.leaves(mu)) ** 0.5
    assert clipped == pytest.approx((1 - SPEC.optimizer.beta1) * SPEC.optimizer.max_grad_norm, rel=1e-3)


@pytest.mark.parametrize("row", [np.nan, np.inf, -np.inf])
def test_a_bad_batch_between_good_ones_leaves_no_bit(row: float) -> None:
    step = step_of(SPEC)
    state, metrics = step(state_with_row(row), Batch(GOOD), 0)
    assert np.isfinite(float(metrics.loss))
    before = bits(state)
    state, metrics = step(state, Batch(BAD), 1)
    assert bool(metrics.skipped) and not np.isfinite(float(metrics.loss))
    assert bits(state) == before
    state, metrics = step(state, Batch(GOOD), 2)
    assert np.isfinite(float(metrics.loss)) and not bool(metrics.skipped)
    assert bits(state) != before


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=[rule.kind for rule in RULES])
def test_under_every_rule_a_bad_step_leaves_no_bit_and_only_the_guard_counts_it(rule: OptimizerConfig) -> None:
    guards = {"clip_update_norm": ClipUpdateNormConfig(4), "skip_bad_steps": SkipBadStepsConfig(4), "ema": EmaConfig(0.5)}
    spec = replace(SPEC, optimizer=rule, **guards)
    state, _ = step_of(spec)(state_with_row(np.nan, spec), Batch(GOOD), 0)
    before, rings = bits(state.parameters, state.optimizer, state.ema), bits(state.skip.losses, state.skip.grad_norms)
    for bad in (1, 2):
        state, metrics = step_of(spec)(state, Batch(BAD), bad)
        assert bool(metrics.skipped) and int(metrics.skipped_in_a_row) == bad
    assert bits(state.parameters, state.optimizer, state.ema) == before
    assert bits(state.skip.losses, state.skip.grad_norms) == rings
    state, metrics = step_of(spec)(state, Batch(GOOD), 3)
    assert not bool(metrics.skipped) and int(metrics.skipped_in_a_row) == 0
    finite = [bool(np.isfinite(np.delete(np.asarray(leaf).reshape(64, -1), RARE, 0)).all()) for leaf in jax.tree.leaves(state)
              if np.asarray(leaf).size % 64 == 0]  # fmt: skip
    assert all(finite)


def test_a_loss_that_jumps_is_skipped_and_forgotten_when_it_stays() -> None:
    state = state_with_row(0.0, WATCHED)
    for step in range(6):
        state, metrics = step_of(WATCHED)(state, Batch(GOOD), step)
        assert not bool(metrics.skipped)
    big = edited(state, lambda m: m.head.array, lambda w: w * 1e3)
    before = bits(big.parameters, big.optimizer)
    skipped = []
    for step in range(6, 20):
        big, metrics = step_of(WATCHED)(big, Batch(GOOD), step)
        skipped.append(bool(metrics.skipped))
        if step == 6:
            assert bits(big.parameters, big.optimizer) == before
    assert skipped[0] and np.isfinite(float(metrics.loss))
    assert not all(skipped)  # the ring continues through skipped steps, so a new level becomes the usual one


def test_a_gradient_that_is_not_finite_is_skipped_though_its_loss_is() -> None:
    # Values near float32's end, multiplied by zero on the way up and by a steep slope on the way down.
    edge = edited(state_with_row(0.0), lambda m: m.blocks.stacked.attention.w_v.array, lambda w: w * 1e37)
    edge = edited(edge, lambda m: m.blocks.stacked.attention.w_o.array, jnp.zeros_like)
    edge = edited(edge, lambda m: m.norm.weight.array, lambda w: w * 1e4)
    before = bits(edge)
    edge, metrics = step_of(SPEC)(edge, Batch(GOOD), 0)
    assert np.isfinite(float(metrics.loss)) and not np.isfinite(float(metrics.grad_norm))
    assert bool(metrics.skipped)
    assert bits(edge) == before


def test_the_average_follows_the_parameters() -> None:
    state = initial_step_state(WATCHED, model_of(WATCHED))
    wanted = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state.parameters)]
    for step in range(5):
        state, metrics = step_of(WATCHED)(state, Batch(GOOD), step)
        assert not bool(metrics.skipped)
        wanted = [0.75 * a + 0.25 * np.asarray(p) for a, p in zip(wanted, jax.tree.leaves(state.parameters), strict=True)]
    for average, leaf in zip(wanted, jax.tree.leaves(state.ema), strict=True):
        np.testing.assert_allclose(leaf, average, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_microbatches_give_the_step_of_the_whole_batch(size: int) -> None:
    spec = replace(SPEC, microbatch_size=size)
    whole, metrics = step_of(SPEC)(state_with_row(0.1), Batch(GOOD), 3)
    parts, of_parts = step_of(spec)(state_with_row(0.1), Batch(GOOD), 3)
    assert float(of_parts.loss) == pytest.approx(float(metrics.loss), rel=1e-6)
    assert float(of_parts.grad_norm) == pytest.approx(float(metrics.grad_norm), rel=1e-4)
    for ours, theirs in zip(jax.tree.leaves(parts.optimizer), jax.tree.leaves(whole.optimizer), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.slow
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6), st.integers(0, 1000))
def test_ragged_microbatches_give_the_masked_mean_of_the_whole_batch(masks: list[list[bool]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = np.array(masks)
    if not mask.any():
        mask[0, 0] = True
    x, y, w = rng.normal(size=(*mask.shape, 3)), rng.normal(size=mask.shape), rng.normal(size=3)

    def objective(parameters, part):
        inputs, targets, keep = part
        count = keep.sum()
        loss = jnp.sum(jnp.where(keep, jnp.square(inputs @ parameters - targets), 0.0)) / count  # 0 / 0 for an empty part
        return loss, Sums(loss, count.astype(jnp.float32))

    arrays = (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.asarray(mask))
    gradient, sums, _ = jax.jit(functools.partial(accumulated_gradients, objective))(jnp.asarray(w, jnp.float32), arrays)
    error = (x @ w - y) * mask
    np.testing.assert_allclose(sums.loss, (error**2).sum() / mask.sum(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient, 2 * np.einsum("ps,psd->d", error, x) / mask.sum(), rtol=1e-3, atol=1e-5)
