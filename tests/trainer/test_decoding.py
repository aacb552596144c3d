"""Decoding with a key-value cache equals the whole forward pass."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tiny import tiny_model
from tiny_models import quick_model

from trainer.model.protocol import KeyValueCache
from trainer.spec.decoder import Llama3RopeScaling
from trainer.spec.models import ModelConfig
from trainer.spec.olmo2 import Olmo2Config

ROWS, POSITIONS = 3, 32
PLAIN = tiny_model(
    vocab_size=50, hidden_dim=16, intermediate_dim=32, num_layers=3, max_seq_len=POSITIONS, initializer_range=0.3
)
CONFIGS: dict[str, ModelConfig] = {
    "plain": PLAIN,
    "all options": replace(
        PLAIN, qk_norm=True, sliding_window=5, rope_scaling=Llama3RopeScaling(original_max_seq_len=8), head_dim=6
    ),
    "olmo2": Olmo2Config(50, 16, 32, 3, 4, 2, POSITIONS, initializer_range=0.3),
}


@dataclass(frozen=True)
class Compiled:
    """A model, whole and step by step."""

    config: ModelConfig
    empty_cache: Callable[[], KeyValueCache]
    full_forward: Callable
    step: Callable
    to_log_probs: Callable


@functools.cache
def compiled(name: str) -> Compiled:
    config = CONFIGS[name]
    model = quick_model(config)
    layers = model.decoder()
    return Compiled(
        config,
        lambda: layers.empty_cache(ROWS, POSITIONS),
        jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens))),
        jax.jit(lambda cache, tokens, starts: layers.extend(cache, tokens, starts)),
        jax.jit(lambda hidden: layers.log_probabilities(hidden)),
    )


steps = st.lists(
    st.tuples(st.sampled_from([1, 4, 8]), st.tuples(*[st.integers(0, 8)] * ROWS)), min_size=1, max_size=12
)  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=examples(20))
@given(steps, st.integers(0, 2**31))
def test_however_a_row_is_cut_up_its_log_probabilities_are_those_of_the_whole(name, steps, seed) -> None:
    """Rows advance each by its own number of tokens, none included; what a step writes behind these is never seen."""
    model, rng = compiled(name), np.random.default_rng(seed)
    tokens = rng.integers(0, model.config.vocab_size, (ROWS, POSITIONS))
    expected = np.asarray(model.full_forward(jnp.asarray(tokens)))
    cache, starts = model.empty_cache(), np.zeros(ROWS, int)
    for size, wanted in steps:
        if (starts + size > POSITIONS).any():
            continue
        given_tokens = rng.integers(0, model.config.vocab_size, (ROWS, size))
        taken = np.minimum(wanted, size)
        for row in range(ROWS):
            given_tokens[row, : taken[row]] = tokens[row, starts[row] : starts[row] + taken[row]]
        cache, hidden = model.step(cache, jnp.asarray(given_tokens), jnp.asarray(starts))
        log_probs = np.asarray(model.to_log_probs(hidden.reshape(ROWS * size, -1))).reshape(ROWS, size, -1)
        for row in range(ROWS):
            here = slice(starts[row], starts[row] + taken[row])
            np.testing.assert_allclose(log_probs[row, : taken[row]], expected[row, here], atol=1e-4)
        starts += taken


def test_a_full_cache_ends_with_the_log_probabilities_of_the_whole() -> None:
    model = compiled("plain")
    tokens = np.random.default_rng(1).integers(0, model.config.vocab_size, (ROWS, POSITIONS))
    cache = model.empty_cache()
    for start in range(0, POSITIONS, 8):
        cache, hidden = model.step(cache, jnp.asarray(tokens[:, start : start + 8]), jnp.full(ROWS, start))
    expected = np.asarray(model.full_forward(jnp.asarray(tokens)))[:, -1]
    np.testing.assert_allclose(np.asarray(model.to_log_probs(hidden[:, -1])), expected, atol=1e-4)
