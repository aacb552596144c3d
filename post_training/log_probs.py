"""Log-probabilities of the tokens of completions under the sampling distribution, with gradient, tile by tile.

Only hidden states before a token of a completion are multiplied with the head. The logits of all tokens never exist at once: a
tile of hidden states is multiplied and reduced, and the backward pass computes it again. Shapes: B rows, S positions, C tokens
of a completion, D hidden, V vocabulary. `starts` are the lengths of the prompts, at least 1; results beyond a row's end mean
nothing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from post_training.sampler import entropy_of
from trainer.model.protocol import LanguageModel
from trainer.spec.compute import Compute

TILE_TOKENS = 512


def token_log_probs(
    model: LanguageModel,
    tokens: Int[Array, "B S"],
    starts: Int[Array, " B"],
    width: int,
    compute: Compute | None = None,
    temperature: float = 1.0,
    kept: UInt8[Array, "B C bytes"] | None = None,
) -> tuple[Float[Array, "B C"], Float[Array, "B C"]]:
    """Return (log-probability of each of `width` tokens from `starts` on, entropy of its distribution)."""
    head = model.head_weight()
    bits = None if kept is None else kept.reshape(-1, kept.shape[-1])
    targets = jnp.take_along_axis(tokens, _places(tokens, starts, width), axis=1)
    flat = _before(model.hidden(tokens, None, compute), starts, width), targets.reshape(-1), bits

    @jax.checkpoint
    def of_tile(tile: tuple) -> tuple[Array, Array]:
        rows, targets, allowed = tile
        chances = distribution(rows, head, temperature, allowed)
        return jnp.take_along_axis(chances, targets[:, None], axis=1)[:, 0], jax.lax.stop_gradient(entropy_of(chances))

    log_probs, entropy = in_tiles(of_tile, flat)
    return log_probs.reshape(targets.shape), entropy.reshape(targets.shape)


def full_kl(
    model: LanguageModel,
    reference: LanguageModel,
    tokens: Int[Array, "B S"],
    starts: Int[Array, " B"],
    width: int,
    compute: Compute | None,
    temperature: float,
) -> Float[Array, "B C"]:
    """KL(model, reference) of the distribution of each of `width` tokens from `starts` on, summed over the vocabulary."""
    hidden, other = (_before(each.hidden(tokens, None, compute), starts, width) for each in (model, reference))
    heads = model.head_weight(), reference.head_weight()

    @jax.checkpoint
    def of_tile(tile: tuple) -> Array:
        ours, theirs = (distribution(rows, head, temperature, None) for rows, head in zip(tile, heads, strict=True))
        return (jnp.exp(ours) * (ours - theirs)).sum(axis=-1)

    return in_tiles(of_tile, (hidden, other)).reshape(tokens.shape[0], width)


def _places(tokens: Int[Array, "B S"], starts: Int[Array, " B"], width: int) -> Int[Array, "B C"]:
    return jnp.minimum(starts[:, None] + jnp.arange(width), tokens.shape[1] - 1)


def _before(hidden: Float[Array, "B S D"], starts: Int[Array, " B"], width: int) -> Float[Array, "N D"]:
    """Return the hidden states before the tokens of the completions, row after row."""
    places = _places(hidden[..., 0], starts, width) - 1
    return jax.vmap(lambda row, at: row[at])(hidden, places).reshape(-1, hidden.shape[-1])


def distribution(
    rows: Float[Array, "N D"], head: Float[Array, "V D"], temperature: float, kept: UInt8[Array, "N bytes"] | None
) -> Float[Array, "N V"]:
    """Return log-probabilities at a temperature, over the kept set if there is one."""
    logits = jnp.matmul(rows, head.T, preferred_element_type=jnp.float32) / temperature
    if kept is not None:
        allowed = jnp.unpackbits(kept, axis=-1, count=head.shape[0]).astype(bool)
        padding = ~allowed.any(axis=-1, keepdims=True)  # rows of `in_tiles` that are cut off; NaN there would spread
        logits = jnp.where(allowed | padding, logits, -jnp.inf)
    return jax.nn.log_softmax(logits, axis=-1)


def in_tiles(of_tile, arrays: tuple):
    """Map a function of [tile, ...] arrays over their rows, padded with zeros to equal tiles; None stays None."""
    count = jax.tree.leaves(arrays)[0].shape[0]
    size = -(-count // -(-count // TILE_TOKENS))

    def tiles(array: Array) -> Array:
        padded = jnp.pad(array, ((0, -count % size), *((0, 0) for _ in array.shape[1:])))
        return padded.reshape(-1, size, *array.shape[1:])

    tiled = jax.lax.map(of_tile, jax.tree.map(tiles, arrays))
    return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:])[:count], tiled)
