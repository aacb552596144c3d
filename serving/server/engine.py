"""The compiled steps of serving: put a prompt block into a row's cache, and decode one token for every row of a lane.

A lane is a cache of fixed length with a fixed number of rows. A request uses the shortest lane that it fits into. Every step
has one of a few shapes (P prompt tokens of one row, or one token of all rows of a lane), so few programs are compiled. A
request is computed in the same shapes beside any other requests, so its numbers do not depend on them or on cached blocks.

Shapes as in `trainer.model.protocol`; P is `block_tokens`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from serving.server.prefix import Block, PrefixCache
from serving.server.versions import UNKNOWN, WeightsVersion
from trainer.inference import Decoder, KeyValueCache, ModelConfig

MOST_LOGPROBS = 20
"""Most alternatives with log-probabilities at a position (vLLM's limit; OpenAI's is 5)."""


@dataclass(frozen=True)
class EngineSettings:
    """Sizes of the engine. Rows and block size decide shapes, so a change may change the last bit of a number."""

    rows: int = 8
    block_tokens: int = 64
    prefix_bytes: int = 256 << 20
    cache_bytes: int | None = None
    """Maximal bytes of all lanes' caches; None: half of the memory that is free when the engine starts."""

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("block_tokens", 1), ("prefix_bytes", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.cache_bytes is not None and self.cache_bytes < 1:
            raise ValueError(f"cache_bytes is {self.cache_bytes}; it must be at least 1, or None")


class NoRoomError(ValueError):
    """The cache that a request needs does not fit into the memory that the server may use."""


def free_bytes() -> int:
    """Return the free memory in bytes: the device's if JAX reports it, else what the host has without swapping."""
    facts = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in facts:
        return facts["bytes_limit"] - facts.get("bytes_in_use", 0)
    text = Path("/proc/meminfo").read_text()
    available = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
    return int(available.split()[1]) << 10


@dataclass(frozen=True)
class BlockScores:
    """For P positions: log-probability (nats) of the next token, and the likeliest tokens with theirs."""

    log_probs: Float[np.ndarray, " P"]
    top_log_probs: Float[np.ndarray, "P T"]
    top_tokens: Int[np.ndarray, "P T"]


@dataclass
class Engine:
    """A model and its caches. Not thread-safe: only the scheduler's thread calls it."""

    model: Decoder
    config: ModelConfig
    settings: EngineSettings
    weights: WeightsVersion = UNKNOWN
    prefix: PrefixCache = field(init=False)
    lanes: dict[int, KeyValueCache] = field(default_factory=dict)
    reserved: set[int] = field(default_factory=set)
    """Lanes whose cache is allocated, or will be allocated at their first step."""
    cache_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = PrefixCache(self.settings.prefix_bytes)
        chosen = self.settings.cache_bytes
        self.cache_bytes = free_bytes() // 2 if chosen is None else chosen

    def replace(self, model: Decoder, weights: WeightsVersion) -> None:
        """Use other weights of the same shapes, between sequences. Cached prompt blocks of the old weights are dropped."""
        self.model, self.weights = model, weights
        self.prefix = PrefixCache(self.settings.prefix_bytes)

    def reserve(self, lane: int) -> None:
        """Reserve memory for a lane's cache before a request is accepted. Raises: NoRoomError.

        An allocation that failed inside a step would end every other request.
        """
        if lane in self.reserved:
            return
        held = sum(self.lane_bytes(each) for each in self.reserved)
        if held + self.lane_bytes(lane) > self.cache_bytes:
            raise NoRoomError(
                f"a context of {lane} tokens needs {self.lane_bytes(lane):,} bytes of cache for {self.settings.rows} rows; "
                f"{max(self.cache_bytes - held, 0):,} of {self.cache_bytes:,} are free: request fewer tokens"
            )
        self.reserved.add(lane)

    def lane_bytes(self, lane: int) -> int:
        """Return the bytes of a lane's cache, as `trainer.model.decoding.empty_cache` allocates it."""
        config = self.config
        return 8 * config.num_layers * self.settings.rows * lane * config.num_kv_heads * config.head_size

    def lane_for(self, num_tokens: int) -> int:
        """Return length of the lane for a request of `num_tokens` tokens: blocks times a power of two, or the longest lane."""
        block = self.settings.block_tokens
        longest = -(-self.config.max_seq_len // block) * block
        length = block
        while length < min(num_tokens, longest):
            length *= 2
        return min(length, longest)

    def prefill(self, lane: int, row: int, tokens: Sequence[int], start: int, key: bytes | None) -> tuple[jax.Array, bool]:
        """Append at most P prompt tokens to a row after its first `start`; returns `hidden [P, D]`, and whether it was cached.

        `key` names a block (`prefix.block_keys`); a block without a key is not cached. Rows of `hidden` after the tokens
        have no meaning.
        """
        cache, place = self._cache(lane), (jnp.int32(row), jnp.int32(start))
        cached = self.prefix.get(key) if key is not None else None
        if cached is not None:
            self.lanes[lane] = _load(cache, cached.keys, cached.values, *place)
            return cached.hidden, True
        padded = np.zeros(self.settings.block_tokens, np.int32)
        padded[: len(tokens)] = tokens
        self.lanes[lane], hidden, keys, values = _prefill(self.model, cache, jnp.asarray(padded), *place)
        if key is not None:
            self.prefix.put(key, Block(keys, values, hidden))
        return hidden, False

    def decode(self, lane: int, tokens: Int[np.ndarray, " R"], starts: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R V"]:
        """Append one token to every row after its first `starts[r]`; returns log-probabilities of the next token.

        For an idle row give its length: the token written there is overwritten before it is read.
        """
        placed = jnp.asarray(tokens, jnp.int32), jnp.asarray(starts, jnp.int32)
        self.lanes[lane], log_probs = _decode(self.model, self._cache(lane), *placed)
        return np.asarray(log_probs)

    def next_log_probs(self, hidden: jax.Array, position: int) -> Float[np.ndarray, " V"]:
        """Return the log-probabilities of the token after one position of a block."""
        return np.asarray(_log_probs_at(self.model, hidden, jnp.int32(position)))

    def score(self, hidden: jax.Array, targets: Sequence[int], top: int) -> BlockScores:
        """Score the tokens that follow each position; `targets` may be fewer than P."""
        padded = np.zeros(len(hidden), np.int32)
        padded[: len(targets)] = targets
        wide = min(1 if top <= 1 else MOST_LOGPROBS, self.config.vocab_size)  # two shapes only
        scores = _score(self.model, hidden, jnp.asarray(padded), wide)
        log_probs, values, tokens = (np.asarray(part)[: len(targets)] for part in scores)
        return BlockScores(log_probs, values[:, :top], tokens[:, :top])

    def _cache(self, lane: int) -> KeyValueCache:
        if lane not in self.lanes:
            self.lanes[lane] = self.model.empty_cache(self.settings.rows, lane)
        return self.lanes[lane]


@partial(jax.jit, donate_argnums=1)
def _prefill(
    model: Decoder, cache: KeyValueCache, tokens: Int[Array, " P"], row: Int[Array, ""], start: Int[Array, ""]
) -> tuple[KeyValueCache, Float[Array, "P D"], Float[Array, "L 1 P K H"], Float[Array, "L 1 P K H"]]:
    one = jax.tree.map(lambda held: jax.lax.dynamic_slice_in_dim(held, row, 1), cache)
    one, hidden = model.extend(one, tokens[None], start[None])
    block = jax.tree.map(lambda new: jax.lax.dynamic_slice_in_dim(new, start, len(tokens), axis=1), one)
    place = (row, start, 0, 0)  # write the block only: the rest of the row is unchanged
    grown = jax.tree.map(lambda held, new: jax.lax.dynamic_update_slice(held, new, place), cache, block)
    return grown, hidden[0], jnp.stack(block.keys), jnp.stack(block.values)


@partial(jax.jit, donate_argnums=0)
def _load(cache: KeyValueCache, keys: Array, values: Array, row: Int[Array, ""], start: Int[Array, ""]) -> KeyValueCache:
    block = KeyValueCache(tuple(keys), tuple(values))
    return jax.tree.map(lambda held, new: jax.lax.dynamic_update_slice(held, new, (row, start, 0, 0)), cache, block)


@partial(jax.jit, donate_argnums=1)
def _decode(
    model: Decoder, cache: KeyValueCache, tokens: Int[Array, " R"], starts: Int[Array, " R"]
) -> tuple[KeyValueCache, Float[Array, "R V"]]:
    cache, hidden = model.extend(cache, tokens[:, None], starts)
    return cache, model.log_probabilities(hidden[:, 0])


@jax.jit
def _log_probs_at(model: Decoder, hidden: Float[Array, "P D"], position: Int[Array, ""]) -> Float[Array, " V"]:
    return model.log_probabilities(jax.lax.dynamic_slice_in_dim(hidden, position, 1))[0]


@partial(jax.jit, static_argnums=3)
def _score(
    model: Decoder, hidden: Float[Array, "P D"], targets: Int[Array, " P"], top: int
) -> tuple[Float[Array, " P"], Float[Array, "P T"], Int[Array, "P T"]]:
    log_probs = model.log_probabilities(hidden)
    return jnp.take_along_axis(log_probs, targets[:, None], axis=1)[:, 0], *jax.lax.top_k(log_probs, top)
