"""Sample completions of many prompts at once, in one compiled program on the trainer's decoder.

The decoder reads a prompt once for all its completions. The completions are a pure function of the model, the prompts and the
key: row r draws the token behind position t by fold_in(fold_in(key, r), t). Shapes: G prompts of P tokens at most, R = G x
`completions` rows of T = `max_new_tokens` tokens at most, V vocabulary, D hidden.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from post_training.spec import SamplingConfig
from trainer.model.protocol import Decoder, KeyValueCache, LanguageModel

CHUNK = 128
"""Tokens of a prompt that are read at once. Scores of attention are [G, heads, CHUNK, P]."""


class Sampled(NamedTuple):
    """Completions, and what the sampler computed for each token. All is 0 beyond the end of a completion, unless said."""

    tokens: Int[Array, "R T"]
    """Filled with the stop token after the end of text."""
    log_probs: Float[Array, "R T"]
    """Log-probability of each sampled token under the sampling distribution."""
    lengths: Int[Array, " R"]
    """Tokens of each completion, with the end of text."""
    ended: Bool[Array, " R"]
    """Whether the completion has an end of text; if not, it is truncated."""
    entropy: Float[Array, "R T"]
    """Entropy of the sampling distribution of each sampled token in nats."""
    kept: UInt8[Array, "R T bytes"] | None
    """Bits of the kept set of each token, first token in the highest bit, all bits beyond the end; None if `top_p` is 1."""


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
    """Compile (model, prompts [G, P], prompt lengths [G], key) -> sampled rows, the completions of a prompt one after another.

    The rest of a prompt's row is not read. A row of prompt and completion has at most `seq_len` tokens.
    """
    return jax.jit(partial(sample, config=config, seq_len=seq_len, stop=stop))


def sample(
    model: LanguageModel,
    prompts: Int[Array, "G P"],
    lengths: Int[Array, " G"],
    key: PRNGKeyArray,
    *,
    config: SamplingConfig,
    seq_len: int,
    stop: int,
) -> Sampled:
    """Read the prompts, then decode one token a step for all rows until every row has ended."""
    decoder: Decoder = model.decoder()
    read, before = read_prompts(decoder, prompts, lengths)
    positions = min(prompts.shape[1] + config.max_new_tokens, seq_len)
    cache, hidden = jax.tree.map(lambda each: jnp.repeat(each, config.completions, axis=0), (cut(read, positions), before))
    starts = jnp.repeat(lengths, config.completions)
    room = jnp.minimum(config.max_new_tokens, seq_len - starts)
    rows, vocab = starts.shape[0], model.head_weight().shape[0]
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(rows))

    def draw(number: Array, hidden: Array, now: Sampled) -> Sampled:
        chances = sampling_log_probs(decoder.log_probabilities(hidden), config)
        drawn = jax.vmap(lambda k, at, c: jax.random.categorical(jax.random.fold_in(k, at), c))(
            keys, starts + number - 1, chances
        )
        live = ~now.ended & (number < room)
        chance = jnp.take_along_axis(chances, drawn[:, None], axis=1)[:, 0]
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=number, axis=1)
        return Sampled(
            put(now.tokens, jnp.where(live, drawn, stop)[:, None]),
            put(now.log_probs, jnp.where(live, chance, 0.0)[:, None]),
            now.lengths + live,
            now.ended | (live & (drawn == stop)),
            put(now.entropy, jnp.where(live, entropy_of(chances), 0.0)[:, None]),
            None if now.kept is None else put(now.kept, kept_bits(chances, live)[:, None]),
        )

    def unfinished(carry: tuple) -> Array:
        number, _, now = carry
        return (number < config.max_new_tokens) & (~now.ended & (number < room)).any()

    def step(carry: tuple) -> tuple:
        number, cache, now = carry
        last = jax.lax.dynamic_slice_in_dim(now.tokens, number - 1, 1, axis=1)
        at = jnp.minimum(starts + number - 1, positions - 1)  # a row without room writes where it reads nothing
        cache, hidden = decoder.extend(cache, last, at)
        return number + 1, cache, draw(number, hidden[:, 0], now)

    first = draw(jnp.int32(0), hidden, nothing(config, rows, vocab, stop))
    return jax.lax.while_loop(unfinished, step, (jnp.int32(1), cache, first))[2]


def nothing(config: SamplingConfig, rows: int, vocab: int, stop: int) -> Sampled:
    """Return rows before the first token."""
    shape = (rows, config.max_new_tokens)
    zeros, bits = jnp.zeros(shape, jnp.float32), jnp.full((*shape, -(-vocab // 8)), 255, jnp.uint8)
    tokens, ended = jnp.full(shape, stop, jnp.int32), jnp.zeros(rows, bool)
    return Sampled(tokens, zeros, jnp.zeros(rows, jnp.int32), ended, zeros, None if config.top_p == 1 else bits)


def read_prompts(
    decoder: Decoder, prompts: Int[Array, "G P"], lengths: Int[Array, " G"]
) -> tuple[KeyValueCache, Float[Array, "G D"]]:
    """Return (keys and values of the prompts, hidden state of the last token of each), a chunk of tokens at a time.

    Beyond a prompt's length the cache holds padding, which no row reads: a token writes its place before it is read.
    """
    count, longest = prompts.shape
    size = min(CHUNK, longest)
    whole = jnp.pad(prompts, ((0, 0), (0, -longest % size)))

    def read(carry: tuple, chunk: Array) -> tuple[tuple, None]:
        cache, last, first = carry
        cache, hidden = decoder.extend(cache, chunk, jnp.full(count, first))
        at = lengths - 1 - first
        at_places = jax.vmap(lambda row, place: row[place])(hidden, jnp.clip(at, 0, size - 1))
        return (cache, jnp.where(((at >= 0) & (at < size))[:, None], at_places, last), first + size), None

    chunks = whole.reshape(count, -1, size).swapaxes(0, 1)
    _, state = jax.eval_shape(decoder.extend, decoder.empty_cache(count, size), chunks[0], lengths)
    begin = decoder.empty_cache(count, whole.shape[1]), jnp.zeros((count, state.shape[-1]), state.dtype), jnp.int32(0)
    (cache, last, _), _ = jax.lax.scan(read, begin, chunks)
    return cache, last


def cut(cache: KeyValueCache, positions: int) -> KeyValueCache:
    """Return a cache with room for so many positions."""

    def sized(array: Array) -> Array:
        more = max(positions - array.shape[1], 0)
        return jnp.pad(array[:, :positions], ((0, 0), (0, more), *((0, 0) for _ in array.shape[2:])))

    return jax.tree.map(sized, cache)
