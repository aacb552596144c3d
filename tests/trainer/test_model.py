"""The model against a slow reference, and properties of every causal language model."""

import functools
import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_model, tiny_spec
from tiny_models import noisy_model, quick_model

from trainer.batch import Batch
from trainer.learning_rate import learning_rates
from trainer.model.build import model_shapes
from trainer.model.transformer import Transformer
from trainer.objectives import next_token_loss
from trainer.optimizers.groups import decay_mask
from trainer.spec.decoder import Llama3RopeScaling
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import DECAYED
from trainer.spec.schedules import WarmupStableDecay
from trainer.step import compiled_step, initial_step_state

CONFIG = tiny_model()
SPEC = tiny_spec(name="test", model=CONFIG, num_steps=60, save_every_steps=60)
TOKENS = np.random.default_rng(0).integers(0, 64, (4, 16)).astype(np.int32)


def numpy_llama(
    model: Transformer, tokens: np.ndarray, config: LlamaConfig = CONFIG, segments: np.ndarray | None = None
) -> np.ndarray:
    """Logits [sequence, vocabulary] of one sequence, position by position and head by head."""
    blocks = model.blocks.stacked
    embedding = np.asarray(model.embedding.array, np.float64)
    x = embedding[tokens]
    length, group = len(tokens), config.num_heads // config.num_kv_heads
    segments = np.zeros(length) if segments is None else segments

    def frequency(i: int, half: int) -> float:
        f, scaling = config.rope_theta ** (-i / half), config.rope_scaling
        if scaling is None:
            return f
        wavelength = 2 * np.pi / f
        if wavelength < scaling.original_max_seq_len / scaling.high_freq_factor:
            return f
        if wavelength > scaling.original_max_seq_len / scaling.low_freq_factor:
            return f / scaling.factor
        s = (scaling.original_max_seq_len / wavelength - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        return (1 - s) * f / scaling.factor + s * f

    def seen(s: int) -> list[int]:
        window = length if config.sliding_window is None else config.sliding_window
        return [k for k in range(s + 1) if s - k < window and segments[k] == segments[s]]

    def head_norm(v: np.ndarray, layer: int, name: str) -> np.ndarray:
        return norm(v, at(layer, getattr(blocks.attention, name).weight)) if config.qk_norm else v

    def norm(v: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return v / np.sqrt((v**2).mean(-1, keepdims=True) + config.norm_eps) * weight

    def rotate(v: np.ndarray, position: int) -> np.ndarray:
        half = v.size // 2
        angle = position * np.array([frequency(i, half) for i in range(half)])
        a, b = v[:half], v[half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])

    def at(layer: int, named) -> np.ndarray:
        return np.asarray(named.array, np.float64)[layer]

    for layer in range(config.num_layers):
        h = norm(x, at(layer, blocks.attention_norm.weight))
        w_q, w_k, w_v, w_o = (at(layer, getattr(blocks.attention, name)) for name in ("w_q", "w_k", "w_v", "w_o"))
        out = np.zeros_like(x)
        for kv in range(config.num_kv_heads):
            keys = np.stack([rotate(head_norm(h[s] @ w_k[:, kv], layer, "k_norm"), s) for s in range(length)])
            values = h @ w_v[:, kv]
            for g in range(group):
                for s in range(length):
                    query = rotate(head_norm(h[s] @ w_q[:, kv, g], layer, "q_norm"), s) / np.sqrt(config.head_size)
                    scores = keys[seen(s)] @ query
                    weights = np.exp(scores - scores.max())
                    out[s] += (weights / weights.sum()) @ values[seen(s)] @ w_o[kv, g]
        x = x + out
        h = norm(x, at(layer, blocks.mlp_norm.weight))
        gate = h @ at(layer, blocks.mlp.w_gate)
        x = x + (gate / (1 + np.exp(-gate)) * (h @ at(layer, blocks.mlp.w_up))) @ at(layer, blocks.mlp.w_down)
    head = embedding if model.head is None else np.asarray(model.head.array, np.float64)
    return norm(x, np.asarray(model.norm.weight.array, np.float64)) @ head.T


def test_logits_are_those_of_the_slow_reference() -> None:
    model = quick_model(CONFIG, 1)
    model = eqx.tree_at(lambda m: m.embedding, model, model.embedding * 20.0)  # far from the origin, where mistakes show
    logits = np.asarray(logits_of(model, TOKENS[:1]))[0]
    np.testing.assert_allclose(logits, numpy_llama(model, TOKENS[0]), atol=2e-3, rtol=1e-3)


SCALING = Llama3RopeScaling(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=128)
"""On CONFIG's wavelengths 6, 63, 628 and 6,283: the first stays, the second is between, the others are stretched."""
VARIANTS = {
    "qk norm": {"qk_norm": True},
    "rope scaling": {"rope_scaling": SCALING},
    "untied": {"tie_embeddings": False},
    "sliding window": {"sliding_window": 5},
    "window of one": {"sliding_window": 1},
    "wide heads": {"head_dim": 12},
    "all": {"qk_norm": True, "rope_scaling": SCALING, "tie_embeddings": False, "sliding_window": 4, "head_dim": 6},
}


@eqx.filter_jit
def logits_of(model: Transformer, tokens: np.ndarray, segments: np.ndarray | None = None) -> jax.Array:
    return model(jnp.asarray(tokens), None if segments is None else jnp.asarray(segments))


@functools.cache
def plain_logits() -> np.ndarray:
    return np.asarray(logits_of(noisy_model(CONFIG, 7), TOKENS[:2]))


PACKED = {"packed": True, "whole": False}
FAST_VARIANTS = {(name, "whole") for name in VARIANTS} | {("all", "packed")}


@pytest.mark.parametrize(
    ("change", "packed"),
    [
        pytest.param(change, packed, id=f"{name}-{how}", marks=() if (name, how) in FAST_VARIANTS else pytest.mark.slow)
        for name, change in VARIANTS.items()
        for how, packed in PACKED.items()
    ],
)
def test_a_variants_logits_are_those_of_the_slow_reference(change: dict, packed: bool) -> None:
    config = replace(CONFIG, **change)
    model = noisy_model(config, 7)
    segments = np.array([[0] * 3 + [1] * 6 + [2] * 7, [4] * 16]) if packed else None
    logits = np.asarray(logits_of(model, TOKENS[:2], segments))
    for row in range(2):
        wanted = numpy_llama(model, TOKENS[row], config, None if segments is None else segments[row])
        np.testing.assert_allclose(logits[row], wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    assert not np.allclose(logits, plain_logits(), atol=1e-2)


def test_a_packed_document_is_read_as_if_it_were_alone() -> None:
    model = noisy_model(replace(CONFIG, sliding_window=6), 9)
    packed = logits_of(model, TOKENS[:1], np.array([[0] * 7 + [1] * 9]))
    alone = logits_of(model, TOKENS[:1, 7:])
    np.testing.assert_allclose(packed[:, 7:], alone, rtol=1e-3, atol=1e-3 * float(jnp.abs(alone).max()))


def test_logits_at_init_are_the_references_to_four_decimals() -> None:
    model = quick_model(CONFIG, 1)
    for sequence, logits in zip(TOKENS, np.asarray(logits_of(model, TOKENS)), strict=True):
        np.testing.assert_allclose(logits, numpy_llama(model, sequence), atol=1e-4, rtol=0)


def test_gradients_are_those_of_finite_differences() -> None:
    model = quick_model(CONFIG, 2)

    @jax.jit
    def loss(scale: jax.Array) -> jax.Array:
        moved = eqx.tree_at(lambda m: m.norm.weight, model, model.norm.weight * scale)
        return next_token_loss(moved, jnp.asarray(TOKENS), 1e-3)[0]

    step = 1e-2
    slope = (loss(jnp.float32(1 + step)) - loss(jnp.float32(1 - step))) / (2 * step)
    assert float(jax.grad(loss)(jnp.float32(1.0))) == pytest.approx(float(slope), rel=2e-2, abs=1e-4)


def test_an_untrained_model_guesses() -> None:
    loss = eqx.filter_jit(next_token_loss)(quick_model(CONFIG), jnp.asarray(TOKENS), 0.0)[1]
    assert float(loss) == pytest.approx(np.log(CONFIG.vocab_size), abs=0.1)


def test_the_future_does_not_change_the_past() -> None:
    model = quick_model(CONFIG)
    changed = TOKENS.copy()
    changed[:, 9:] = (changed[:, 9:] + 1) % 64
    before, after = np.asarray(logits_of(model, TOKENS)), np.asarray(logits_of(model, changed))
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert not np.allclose(before[:, 9:], after[:, 9:])


def test_the_parameter_formula_counts_the_leaves() -> None:
    for change in ({}, *VARIANTS.values()):
        config = replace(CONFIG, **change)
        leaves = jax.tree.leaves(model_shapes(config))
        assert sum(leaf.size for leaf in leaves) == config.num_parameters


def test_one_batch_can_be_learned_by_heart() -> None:
    model = quick_model(CONFIG)
    state, step_fn, losses = initial_step_state(SPEC, model), compiled_step(SPEC, model), []
    for step in range(60):
        state, metrics = step_fn(state, Batch(jnp.asarray(TOKENS)), step)
        losses.append(float(metrics.loss))
    assert losses[-1] < 0.5 < losses[0]


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_no_bit() -> None:
    model = quick_model(CONFIG)
    poisoned = eqx.tree_at(lambda m: m.norm.weight.array, model, model.norm.weight.array.at[0].set(jnp.nan))
    state = initial_step_state(SPEC, poisoned)
    before = [np.asarray(leaf).copy() for leaf in jax.tree.leaves(state)]
    state, metrics = compiled_step(SPEC, model)(state, Batch(jnp.asarray(TOKENS)), 0)
    after = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    assert bool(metrics.skipped) and not np.isfinite(float(metrics.loss))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_decay_spares_norms_and_the_embedding() -> None:
    flags = jax.tree_util.tree_leaves_with_path(decay_mask(model_shapes(CONFIG), DECAYED))
    decayed = {jax.tree_util.keystr(path) for path, flag in flags if flag}
    assert len(decayed) == 7
    assert not any("norm" in name or "embedding" in name for name in decayed)


def test_the_schedule_warms_up_holds_and_decays() -> None:
    schedule = WarmupStableDecay(peak_learning_rate=2.0, warmup_steps=4, decay_frac=0.25, min_lr_ratio=0.1)
    rates = learning_rates(schedule, 40).tolist()
    assert rates[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert rates[4:31] == pytest.approx([2.0] * 27)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[30:]))
    assert rates[-1] == pytest.approx(2.0 * (0.1 + 0.9 / 10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 3}, "model.num_heads is 4; it must be a multiple of 3"),
        ({"hidden_dim": 30}, "model.hidden_dim is 30; it must be a multiple of 4"),
        ({"num_layers": 0}, "model.num_layers is 0; it must be positive"),
        ({"sliding_window": 0}, "model.sliding_window is 0; it must be positive, or None"),
        ({"head_dim": 7}, "model.head_dim is 7; it must be positive and even, for rotary embeddings"),
        ({"head_dim": 0}, "model.head_dim is 0; it must be positive and even"),
        ({"hidden_dim": 36}, "model.hidden_dim / num_heads is 9; it must be positive and even"),
    ],
)
def test_a_bad_model_config_names_field_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LlamaConfig(**{**vars(CONFIG), **change})
