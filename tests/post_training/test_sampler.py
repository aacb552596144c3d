"""The sampler against the trainer's own log-probabilities, and its completions as a pure function of the key."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import quick_model

from post_training.log_probs import full_kl, token_log_probs
from post_training.sampler import compiled_sampler, sampling_log_probs
from post_training.spec import SamplingConfig
from tests.tiny import tiny_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

STOP = 0
MODEL = tiny_model(initializer_range=0.2, vocab_size=61)


@functools.cache
def sampled(config: SamplingConfig, seed: int = 3):
    model = quick_model(MODEL, 1)
    prompts = np.full((12, 16), 7, np.int32)
    prompts[:, :6] = np.random.default_rng(0).integers(1, 61, (12, 6))
    lengths = np.array([3, 6, 1, 4] * 3, np.int32)
    return model, prompts, lengths, compiled_sampler(config, 16, STOP)(model, prompts, lengths, jax.random.PRNGKey(seed))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_log_probs_are_those_of_the_trainer(temperature: float, top_p: float) -> None:
    model, _, lengths, rows = sampled(SamplingConfig(3, 4, 8, temperature, top_p))
    found, entropy = token_log_probs(model, rows.tokens, None, temperature, rows.kept)
    places = np.arange(16)
    completion = (places >= lengths[:, None]) & (places < np.asarray(rows.lengths)[:, None])
    assert completion.any(axis=1).all()
    assert np.abs(np.asarray(found - rows.log_probs))[completion].max() <= 1e-4
    assert np.abs(np.asarray(entropy - rows.entropy))[completion].max() <= 1e-4
    assert not np.asarray(rows.log_probs)[~completion].any()


def test_rows_hold_the_prompt_then_tokens_to_the_end_of_text() -> None:
    _, prompts, lengths, rows = sampled(SamplingConfig(3, 4, 8))
    tokens, ends = np.asarray(rows.tokens), np.asarray(rows.lengths)
    for row in range(12):
        assert (tokens[row, : lengths[row]] == prompts[row, : lengths[row]]).all()
        completion = tokens[row, lengths[row] : ends[row]]
        assert 1 <= len(completion) <= 8
        assert bool(rows.ended[row]) == (completion[-1] == STOP)
        assert not (completion[:-1] == STOP).any()


def test_the_same_key_gives_the_same_rows_and_another_key_gives_others() -> None:
    config = SamplingConfig(3, 4, 8)
    first, again, other = sampled(config)[3], sampled.__wrapped__(config)[3], sampled(config, 4)[3]
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(first, again, strict=True) if a is not None)
    assert (np.asarray(first.tokens) != np.asarray(other.tokens)).any()


def test_samples_follow_the_distribution() -> None:
    """The first token of 4,000 rows with one prompt: a chi-squared statistic below its 99.99 % quantile."""
    model = quick_model(tiny_model(initializer_range=0.2, vocab_size=8), 1)
    config = SamplingConfig(1000, 4, 1, 0.7)
    prompts = np.full((4000, 4), 5, np.int32)
    rows = compiled_sampler(config, 4, STOP)(model, prompts, np.full(4000, 2, np.int32), jax.random.PRNGKey(0))
    logits = eqx.filter_jit(lambda each, tokens: each(tokens))(model, jnp.array([[5, 5]]))
    chances = np.exp(np.asarray(sampling_log_probs(jax.nn.log_softmax(logits[0, 1]), config)))
    counts = np.bincount(np.asarray(rows.tokens)[:, 2], minlength=8)
    assert ((counts - 4000 * chances) ** 2 / (4000 * chances)).sum() < 30.0


def test_the_kept_set_is_the_smallest_with_the_mass() -> None:
    log_probs = jnp.log(jnp.array([[0.5, 0.1, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    found = np.exp(np.asarray(sampling_log_probs(log_probs, SamplingConfig(1, 1, 1, 1.0, 0.75))))
    assert found[0] == pytest.approx([0.625, 0, 0.375, 0], abs=1e-6)
    assert found[1] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)


def test_gradients_are_finite_with_a_kept_set_and_equal_without_tiles() -> None:
    model, _, _, rows = sampled(SamplingConfig(3, 4, 8, 0.8, 0.7))
    weights = np.random.default_rng(1).normal(size=rows.tokens.shape).astype(np.float32) * (np.asarray(rows.log_probs) < 0)

    def tiled(head):
        return (token_log_probs(model_with(model, head), rows.tokens, None, 0.8, rows.kept)[0] * weights).sum()

    def plain(head):
        logits = model_with(model, head)(rows.tokens)[:, :-1] / 0.8
        allowed = jnp.unpackbits(rows.kept[:, 1:], axis=-1, count=61).astype(bool)
        chances = jax.nn.log_softmax(jnp.where(allowed, logits, -1e30), axis=-1)
        return (jnp.take_along_axis(chances, rows.tokens[:, 1:, None], axis=-1)[..., 0] * weights[:, 1:]).sum()

    head = model.embedding.array
    found, wanted = jax.jit(jax.grad(tiled))(head), jax.jit(jax.grad(plain))(head)
    assert np.isfinite(np.asarray(found)).all()
    assert np.asarray(found) == pytest.approx(np.asarray(wanted), abs=1e-4)


def model_with(model, head):
    return eqx.tree_at(lambda each: each.embedding.array, model, head)


def test_full_kl_is_the_sum_over_the_vocabulary() -> None:
    model, _, _, rows = sampled(SamplingConfig(3, 4, 8))
    other = quick_model(MODEL, 9)
    log_probs = eqx.filter_jit(lambda each: jax.nn.log_softmax(each(rows.tokens) / 0.6)[:, :-1])
    ours, theirs = log_probs(model), log_probs(other)
    wanted = np.asarray((jnp.exp(ours) * (ours - theirs)).sum(-1))
    assert np.asarray(full_kl(model, other, rows.tokens, None, 0.6))[:, 1:] == pytest.approx(wanted, abs=1e-5)
