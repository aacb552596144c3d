"""The model a few tokens at a time: keys and values of earlier tokens are kept, so a new token costs one position's work.

Shapes: L layers, R rows (requests side by side), C positions of a row's cache, S new tokens, K key/value heads, H head
size, D hidden, V vocabulary. The functions here are pure; `evals.serve.engine` compiles them and owns the arrays.
"""

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from jaxtyping import Array, Bool, Float, Int

from trainer.config import LlamaConfig
from trainer.model import Block, Llama


class KeyValueCache(eqx.Module):
    """Keys and values of every layer and row. What is behind a row's newest token is never read, so it may hold anything."""

    keys: Float[Array, "L R C K H"]
    values: Float[Array, "L R C K H"]


def empty_cache(config: LlamaConfig, rows: int, positions: int) -> KeyValueCache:
    """A cache of zeros; two of `4 * L * R * C * K * H` bytes."""
    shape = (config.num_layers, rows, positions, config.num_kv_heads, config.head_dim)
    return KeyValueCache(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))


def extend(
    model: Llama, cache: KeyValueCache, tokens: Int[Array, "R S"], starts: Int[Array, " R"]
) -> tuple[KeyValueCache, Float[Array, "R S D"]]:
    """Append S tokens to each row behind its first `starts[r]`: the cache with them, and what the head is multiplied with.

    Equal to `Llama.hidden` of the whole row up to the order of float sums, when the cache holds the first `starts[r]` tokens.
    `starts[r] + S` must not pass C (XLA would clamp the write and spoil earlier tokens); the caller sees to it.
    """
    layers, row = model.blocks.Block, Axis("batch", tokens.shape[0])
    named = hax.named(tokens, (row, "position"))
    axes = (layers, row, Axis("key_position", cache.keys.shape[2]), *_heads(model))
    positions = hax.named(starts[:, None] + jnp.arange(tokens.shape[1]), (row, "position"))
    queries, kept = positions.broadcast_axis(axes[2]), hax.arange(axes[2])
    reach = queries >= kept
    if model.sliding_window is not None:
        reach = reach & (queries - kept < model.sliding_window)

    def layer(x: NamedArray, block: Block, keys: NamedArray, values: NamedArray) -> tuple[NamedArray, tuple[NamedArray, ...]]:
        normed = block.attention_norm(x)
        new_keys, new_values = block.attention.keys_values(normed, positions)
        keys, values = _write(keys, new_keys, starts), _write(values, new_values, starts)
        x = x + block.attention.attend(normed, keys, values, positions, reach)
        return x + block.mlp(block.mlp_norm(x)), (keys, values)

    x, (keys, values) = hax.scan(layer, layers)(
        model.embedding.take("vocab", named), model.blocks.stacked, hax.named(cache.keys, axes), hax.named(cache.values, axes)
    )
    grown = KeyValueCache(keys.rearrange(axes).array, values.rearrange(axes).array)
    return grown, model.norm(x).rearrange((row, "position", "embed")).array


def hidden_in_tree(
    model: Llama, tokens: Int[Array, " S"], positions: Int[Array, " S"], reach: Bool[Array, "S S"]
) -> Float[Array, "S D"]:
    """What the head is multiplied with where token `s` has its own position and looks only where `reach[s]` is true.

    `reach` names ancestors (`trainer.shared_prefixes`); a sliding window counts positions, not places.
    """
    named, query = hax.named(tokens, "position"), hax.named(positions, "position")
    key = query.rename({"position": "key_position"})
    allowed = hax.named(reach, ("position", "key_position"))
    if model.sliding_window is not None:
        allowed = allowed & (query.broadcast_axis(key.resolve_axis("key_position")) - key < model.sliding_window)

    def layer(x: NamedArray, block: Block) -> NamedArray:
        normed = block.attention_norm(x)
        x = x + block.attention.attend(normed, *block.attention.keys_values(normed, query), query, allowed)
        return x + block.mlp(block.mlp_norm(x))

    x = hax.fold(layer, model.blocks.Block)(model.embedding.take("vocab", named), model.blocks.stacked)
    return model.norm(x).rearrange(("position", "embed")).array


def log_probabilities(model: Llama, hidden: Float[Array, "N D"]) -> Float[Array, "N V"]:
    """Log-probabilities in nats of the token after each position."""
    return jax.nn.log_softmax(jnp.einsum("nd,vd->nv", hidden, model.head_weight()), axis=-1)


def _heads(model: Llama) -> tuple[Axis, Axis]:
    attention = model.blocks.stacked.attention
    return attention.w_k.resolve_axis("kv_heads"), attention.w_k.resolve_axis("head_dim")


def _write(held: NamedArray, new: NamedArray, starts: Int[Array, " R"]) -> NamedArray:
    """The rows of `held` with `new` from `starts[r]` on."""
    update = jax.vmap(lambda row, piece, start: jax.lax.dynamic_update_slice_in_dim(row, piece, start, axis=0))
    return hax.named(update(held.array, new.rearrange(tuple(axis.name for axis in held.axes)).array, starts), held.axes)
