"""Sample completions of many prompts at once, in one compiled program on the trainer's decoder.

The completions are a pure function of the model, the prompts and the key: row r at position t draws by
fold_in(fold_in(key, r), t). Shapes: R rows, C positions of a row, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from post_training.spec import SamplingConfig
from trainer.model.protocol import Decoder, LanguageModel


class Sampled(NamedTuple):
    """Rows of prompt and completion, and what the sampler computed for each token."""

    tokens: Int[Array, "R C"]
    """After the end of text a row is filled with the stop token."""
    log_probs: Float[Array, "R C"]
    """Log-probability of each sampled token under the sampling distribution; 0 elsewhere."""
    lengths: Int[Array, " R"]
    """Tokens of prompt and completion, with the end of text."""
    ended: Bool[Array, " R"]
    """Whether the row has an end of text; if not, the completion is truncated."""
    entropy: Float[Array, "R C"]
    """Entropy of the sampling distribution of each sampled token in nats; 0 elsewhere."""
    kept: UInt8[Array, "R C bytes"] | None
    """Bits of the kept set of each token, first token in the highest bit; None if `top_p` is 1."""


def sampling_log_probs(log_probs: Float[Array, "*N V"], config: SamplingConfig) -> Float[Array, "*N V"]:
    """The sampling distribution: temperature first, then the smallest set of likeliest tokens with mass `top_p`."""
    tempered = jax.nn.log_softmax(log_probs / config.temperature, axis=-1)
    if config.top_p == 1:
        return tempered
    order = jnp.argsort(-tempered, axis=-1, stable=True)
    ranked = jnp.take_along_axis(jnp.exp(tempered), order, axis=-1)
    inside = jnp.cumsum(ranked, axis=-1) - ranked < config.top_p
    kept = jnp.take_along_axis(inside, jnp.argsort(order, axis=-1), axis=-1)
    return jax.nn.log_softmax(jnp.where(kept, tempered, -jnp.inf), axis=-1)


def entropy_of(log_probs: Float[Array, "*N V"]) -> Float[Array, "*N"]:
    """Entropy in nats; impossible tokens count 0."""
    return -(jnp.exp(log_probs) * jnp.where(jnp.isfinite(log_probs), log_probs, 0.0)).sum(axis=-1)


def kept_bits(chances: Float[Array, "R V"], live: Bool[Array, " R"]) -> UInt8[Array, "R bytes"]:
    """The possible tokens of each row as bits; all bits where no token is sampled."""
    return jnp.where(live[:, None], jnp.packbits(jnp.isfinite(chances), axis=-1), jnp.uint8(255))


type Sampler = Callable[[LanguageModel, Array, Array, PRNGKeyArray], Sampled]


def compiled_sampler(config: SamplingConfig, seq_len: int, stop: int) -> Sampler:
    """Compile (model, prompts [R, C], prompt lengths [R], key) -> sampled rows. The rest of a prompt's row is not read."""
    return jax.jit(partial(sample, config=config, seq_len=seq_len, stop=stop))


def sample(
    model: LanguageModel,
    prompts: Int[Array, "R C"],
    lengths: Int[Array, " R"],
    key: PRNGKeyArray,
    *,
    config: SamplingConfig,
    seq_len: int,
    stop: int,
) -> Sampled:
    """Decode one token a step for all rows until every row has ended. Prompts of all lengths are read in the same steps."""
    decoder: Decoder = model.decoder()
    rows, vocab = prompts.shape[0], model.head_weight().shape[0]
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(rows))
    bits = None if config.top_p == 1 else jnp.full((rows, seq_len, -(-vocab // 8)), 255, jnp.uint8)
    limit = jnp.minimum(lengths + config.max_new_tokens, seq_len)
    zeros = jnp.zeros((rows, seq_len), jnp.float32)
    tokens = jnp.where(jnp.arange(seq_len) < lengths[:, None], prompts, stop)
    begin = Sampled(tokens, zeros, lengths, jnp.zeros(rows, bool), zeros, bits)

    def unfinished(carry: tuple) -> Array:
        place, _, sampled = carry
        return (place < seq_len - 1) & (~sampled.ended & (place + 1 < limit)).any()

    def step(carry: tuple) -> tuple:
        place, cache, now = carry
        column = jax.lax.dynamic_slice_in_dim(now.tokens, place, 1, axis=1)
        cache, hidden = decoder.extend(cache, column, jnp.full(rows, place))
        chances = sampling_log_probs(decoder.log_probabilities(hidden[:, 0]), config)
        drawn = jax.vmap(lambda k, c: jax.random.categorical(jax.random.fold_in(k, place), c))(keys, chances)
        live = (place + 1 >= lengths) & (place + 1 < limit) & ~now.ended
        chance = jnp.where(live, jnp.take_along_axis(chances, drawn[:, None], axis=1)[:, 0], 0.0)
        held = jax.lax.dynamic_slice_in_dim(now.tokens, place + 1, 1, axis=1)[:, 0]
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=place + 1, axis=1)
        new = Sampled(
            put(now.tokens, jnp.where(live, drawn, held)[:, None]),
            put(now.log_probs, chance[:, None]),
            now.lengths + live,
            now.ended | (live & (drawn == stop)),
            put(now.entropy, jnp.where(live, entropy_of(chances), 0.0)[:, None]),
            None if now.kept is None else put(now.kept, kept_bits(chances, live)[:, None]),
        )
        return place + 1, cache, new

    first = jnp.int32(0)
    return jax.lax.while_loop(unfinished, step, (first, decoder.empty_cache(rows, seq_len), begin))[2]
