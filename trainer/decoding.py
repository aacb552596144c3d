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
from trainer.model import Block, Llama, RmsNorm


class Layers(eqx.Module):
    """A model with every layer's parameters in arrays of their own, which decoding reads where they lie.

    Stacked layers under `scan` are copied out of their array at every step, and so is the cache: of 16 rows with 135 M
    parameters a step takes 0.65 CPU seconds that way and 0.28 this way, to the same bits (2026-11-22, two cores, loaded).
    The price is compilation, which grows with depth (5.5 CPU seconds instead of 2.2).
    """

    embedding: NamedArray
    blocks: tuple[Block, ...]
    norm: RmsNorm
    head: NamedArray | None
    sliding_window: int | None = eqx.field(static=True)

    @staticmethod
    def of(model: Llama) -> "Layers":
        """The parameters are copied: let go of `model` where memory counts."""
        stacked, axis = model.blocks.stacked, model.blocks.Block.name

        def layer(number: int) -> Block:
            return jax.tree.map(lambda named: named[axis, number], stacked, is_leaf=lambda leaf: isinstance(leaf, NamedArray))

        blocks = tuple(layer(number) for number in range(model.blocks.Block.size))
        return Layers(model.embedding, blocks, model.norm, model.head, model.sliding_window)

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix: the embedding where the two are tied."""
        return (self.embedding if self.head is None else self.head).rearrange(("vocab", "embed")).array


class KeyValueCache(eqx.Module):
    """Keys and values by layer and row. What is behind a row's newest token is never read, so it may hold anything."""

    keys: tuple[Float[Array, "R C K H"], ...]
    values: tuple[Float[Array, "R C K H"], ...]


def empty_cache(config: LlamaConfig, rows: int, positions: int) -> KeyValueCache:
    """A cache of zeros; `8 * L * R * C * K * H` bytes."""
    shape = (rows, positions, config.num_kv_heads, config.head_size)
    keys, values = (tuple(jnp.zeros(shape, jnp.float32) for _ in range(config.num_layers)) for _ in range(2))
    return KeyValueCache(keys, values)


def extend(
    model: Layers, cache: KeyValueCache, tokens: Int[Array, "R S"], starts: Int[Array, " R"]
) -> tuple[KeyValueCache, Float[Array, "R S D"]]:
    """Append S tokens to each row behind its first `starts[r]`: the cache with them, and what the head is multiplied with.

    Equal to `Llama.hidden` of the whole row up to the order of float sums, when the cache holds the first `starts[r]` tokens.
    `starts[r] + S` must not pass C (XLA would clamp the write and spoil earlier tokens); the caller sees to it.
    """
    row = Axis("batch", tokens.shape[0])
    named = hax.named(tokens, (row, "position"))
    axes = (row, Axis("key_position", cache.keys[0].shape[1]), *_heads(model))
    positions = hax.named(starts[:, None] + jnp.arange(tokens.shape[1]), (row, "position"))
    queries, kept = positions.broadcast_axis(axes[1]), hax.arange(axes[1])
    reach = queries >= kept
    if model.sliding_window is not None:
        reach = reach & (queries - kept < model.sliding_window)
    x, grown = model.embedding.take("vocab", named), []
    for block, held_keys, held_values in zip(model.blocks, cache.keys, cache.values, strict=True):
        normed = block.attention_norm(x)
        new_keys, new_values = block.attention.keys_values(normed, positions)
        keys = _write(hax.named(held_keys, axes), new_keys, starts)
        values = _write(hax.named(held_values, axes), new_values, starts)
        x = x + block.attention.attend(normed, keys, values, positions, reach)
        x = x + block.mlp(block.mlp_norm(x))
        grown.append((keys.rearrange(axes).array, values.rearrange(axes).array))
    all_keys, all_values = zip(*grown, strict=True)
    return KeyValueCache(all_keys, all_values), model.norm(x).rearrange((row, "position", "embed")).array


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


def log_probabilities(model: Layers, hidden: Float[Array, "N D"]) -> Float[Array, "N V"]:
    """Log-probabilities in nats of the token after each position."""
    return jax.nn.log_softmax(jnp.einsum("nd,vd->nv", hidden, model.head_weight()), axis=-1)


def _heads(model: Layers) -> tuple[Axis, Axis]:
    attention = model.blocks[0].attention
    return attention.w_k.resolve_axis("kv_heads"), attention.w_k.resolve_axis("head_dim")


def _write(held: NamedArray, new: NamedArray, starts: Int[Array, " R"]) -> NamedArray:
    """The rows of `held` with `new` from `starts[r]` on."""
    update = jax.vmap(lambda row, piece, start: jax.lax.dynamic_update_slice_in_dim(row, piece, start, axis=0))
    return hax.named(update(held.array, new.rearrange(tuple(axis.name for axis in held.axes)).array, starts), held.axes)
