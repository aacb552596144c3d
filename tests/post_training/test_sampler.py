"""The sampler against the trainer's own log-probabilities, and its completions as a pure function of the key."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import quick_model

from post_training import sampler
from post_training.log_probs import full_kl, token_log_probs
from post_training.rows import filled
from post_training.sampler import Sampled, compiled_sampler, sampling_log_probs
from post_training.spec import SamplingConfig
from tests.tiny import tiny_model
from trainer.model.protocol import LanguageModel

pytestmark = pytest.mark.usefixtures("quick_compilation")

STOP = 0
MODEL = tiny_model(initializer_range=0.2, vocab_size=61)


class Rows(NamedTuple):
    """What was sampled, and the whole rows of prompt and completion."""

    model: LanguageModel
    prompts: np.ndarray
    starts: np.ndarray
    found: Sampled
    tokens: np.ndarray

    @property
    def completion(self) -> np.ndarray:
        return np.arange(self.found.tokens.shape[1]) < np.asarray(self.found.lengths)[:, None]


@functools.cache
def sampled(config: SamplingConfig, seed: int = 3) -> Rows:
    """Completions of three prompts of 3, 6 and 1 tokens in rows of at most 16."""
    model = quick_model(MODEL, 1)
    prompts = np.full((3, 6), 7, np.int32)
    prompts[:, :6] = np.random.default_rng(0).integers(1, 61, (3, 6))
    lengths = np.array([3, 6, 1], np.int32)
    found = compiled_sampler(config, 16, STOP)(model, prompts, lengths, jax.random.PRNGKey(seed))
    starts = np.repeat(lengths, config.completions)
    begun = np.pad(np.repeat(prompts, config.completions, axis=0), ((0, 0), (0, 10)))
    return Rows(model, prompts, starts, found, filled(begun, starts, np.asarray(found.tokens), starts + found.lengths))


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [(1.0, 1.0), (0.6, 0.8), pytest.param(0.6, 1.0, marks=pytest.mark.slow), pytest.param(1.0, 0.8, marks=pytest.mark.slow)],
)
def test_log_probs_are_those_of_the_trainer(temperature: float, top_p: float) -> None:
    model, _, starts, rows, tokens = sampled(SamplingConfig(3, 4, 8, temperature, top_p))
    completion = sampled(SamplingConfig(3, 4, 8, temperature, top_p)).completion
    found, entropy = eqx.filter_jit(token_log_probs)(model, tokens, starts, 8, None, temperature, rows.kept)
    assert completion.any(axis=1).all()
    assert np.abs(np.asarray(found - rows.log_probs))[completion].max() <= 1e-4
    assert np.abs(np.asarray(entropy - rows.entropy))[completion].max() <= 1e-4
    assert not np.asarray(rows.log_probs)[~completion].any()


def test_a_long_prompt_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of four tokens; lengths of 3, 6 and 1 end in the first or the second."""
    config = SamplingConfig(3, 4, 8)
    whole = sampled(config)
    monkeypatch.setattr(sampler, "CHUNK", 4)
    found = sampled.__wrapped__(config).found
    assert (np.asarray(found.tokens) == np.asarray(whole.found.tokens)).all()
    assert np.asarray(found.log_probs) == pytest.approx(np.asarray(whole.found.log_probs), abs=1e-5)


def test_a_row_ends_where_the_sequence_ends() -> None:
    rows = compiled_sampler(SamplingConfig(2, 3, 8), 8, STOP)(
        quick_model(MODEL, 1), np.full((2, 7), 5, np.int32), np.array([7, 4], np.int32), jax.random.PRNGKey(0)
    )
    lengths, ended = np.asarray(rows.lengths), np.asarray(rows.ended)
    assert (lengths <= np.repeat([1, 4], 3)).all() and (ended | (lengths == np.repeat([1, 4], 3))).all()


def test_completions_are_tokens_up_to_the_end_of_text() -> None:
    rows = sampled(SamplingConfig(3, 4, 8)).found
    tokens, ends = np.asarray(rows.tokens), np.asarray(rows.lengths)
    for row in range(12):
        completion = tokens[row, : ends[row]]
        assert 1 <= len(completion) <= 8
        assert bool(rows.ended[row]) == (completion[-1] == STOP)
        assert not (completion[:-1] == STOP).any()
        assert (tokens[row, ends[row] :] == STOP).all()


def test_the_same_key_gives_the_same_rows_and_another_key_gives_others() -> None:
    config = SamplingConfig(3, 4, 8)
    first, again, other = sampled(config).found, sampled.__wrapped__(config).found, sampled(config, 4).found
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(first, again, strict=True) if a is not None)
    assert (np.asarray(first.tokens) != np.asarray(other.tokens)).any()


def test_samples_follow_the_distribution() -> None:
    """The first token of 4,000 completions of one prompt: a chi-squared statistic below its 99.99 % quantile."""
    model = quick_model(tiny_model(initializer_range=0.2, vocab_size=8), 1)
    config = SamplingConfig(1000, 4, 1, 0.7)
    prompts = np.full((1000, 2), 5, np.int32)
    rows = compiled_sampler(config, 4, STOP)(model, prompts, np.full(1000, 2, np.int32), jax.random.PRNGKey(0))
    logits = eqx.filter_jit(lambda each, tokens: each(tokens))(model, jnp.array([[5, 5]]))
    chances = np.exp(np.asarray(sampling_log_probs(jax.nn.log_softmax(logits[0, 1]), config)))
    counts = np.bincount(np.asarray(rows.tokens)[:, 0], minlength=8)
    assert ((counts - 4000 * chances) ** 2 / (4000 * chances)).sum() < 30.0


def test_the_kept_set_is_the_smallest_with_the_mass() -> None:
    log_probs = jnp.log(jnp.array([[0.5, 0.1, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    found = np.exp(np.asarray(sampling_log_probs(log_probs, SamplingConfig(1, 1, 1, 1.0, 0.75))))
    assert found[0] == pytest.approx([0.625, 0, 0.375, 0], abs=1e-6)
    assert found[1] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)


def test_gradients_are_finite_with_a_kept_set_and_equal_without_tiles() -> None:
    model, _, starts, rows, tokens = sampled(SamplingConfig(3, 4, 8, 0.6, 0.8))
    weights = np.random.default_rng(1).normal(size=rows.tokens.shape).astype(np.float32) * (np.asarray(rows.log_probs) < 0)
    places = np.minimum(starts[:, None] + np.arange(8), 15)
    each_row, targets = np.arange(12)[:, None], np.take_along_axis(tokens, places, axis=1)

    def tiled(head):
        return (token_log_probs(model_with(model, head), tokens, starts, 8, None, 0.6, rows.kept)[0] * weights).sum()

    def plain(head):
        logits = model_with(model, head)(tokens)[each_row, places - 1] / 0.6
        allowed = jnp.unpackbits(rows.kept, axis=-1, count=61).astype(bool)
        chances = jax.nn.log_softmax(jnp.where(allowed, logits, -1e30), axis=-1)
        return (jnp.take_along_axis(chances, targets[..., None], axis=-1)[..., 0] * weights).sum()

    head = model.embedding.array
    found, wanted = jax.jit(jax.grad(tiled))(head), jax.jit(jax.grad(plain))(head)
    assert np.isfinite(np.asarray(found)).all()
    assert np.asarray(found) == pytest.approx(np.asarray(wanted), abs=1e-4)


def model_with(model, head):
    return eqx.tree_at(lambda each: each.embedding.array, model, head)


def test_full_kl_is_the_sum_over_the_vocabulary() -> None:
    model, _, _, _, tokens = sampled(SamplingConfig(3, 4, 8))
    other = quick_model(MODEL, 9)
    log_probs = eqx.filter_jit(lambda each: jax.nn.log_softmax(each(tokens) / 0.6)[:, :-1])
    ours, theirs = log_probs(model), log_probs(other)
    wanted = np.asarray((jnp.exp(ours) * (ours - theirs)).sum(-1))
    found = full_kl(model, other, tokens, np.ones(12, np.int32), 15, None, 0.6)
    assert np.asarray(found) == pytest.approx(wanted, abs=1e-5)
