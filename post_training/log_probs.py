"""Log-probabilities of given tokens under the sampling distribution, with gradient, tile by tile.

The logits of all tokens never exist at once. A tile of rows is multiplied with the head and reduced. The backward pass computes
it again. Shapes: B rows, S positions, D hidden, V vocabulary.
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
    compute: Compute | None = None,
    temperature: float = 1.0,
    kept: UInt8[Array, "B S bytes"] | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Return (log-probability of each token given those before it, entropy of its distribution); 0 at the first position."""
    hidden = model.hidden(tokens, None, compute)[:, :-1]
    head = model.head_weight()
    bits = None if kept is None else kept[:, 1:].reshape(-1, kept.shape[-1])
    flat = hidden.reshape(-1, hidden.shape[-1]), tokens[:, 1:].reshape(-1), bits

    @jax.checkpoint
    def of_tile(tile: tuple) -> tuple[Array, Array]:
        rows, targets, allowed = tile
        chances = distribution(rows, head, temperature, allowed)
        return jnp.take_along_axis(chances, targets[:, None], axis=1)[:, 0], jax.lax.stop_gradient(entropy_of(chances))

    found = in_tiles(of_tile, flat)
    shape = (tokens.shape[0], tokens.shape[1] - 1)
    first, second = (jnp.pad(each.reshape(shape), ((0, 0), (1, 0))) for each in found)
    return first, second


def full_kl(
    model: LanguageModel, reference: LanguageModel, tokens: Int[Array, "B S"], compute: Compute | None, temperature: float
) -> Float[Array, "B S"]:
    """KL(model, reference) of the distribution of each token, summed over the vocabulary; 0 at the first position."""
    hidden, other = (each.hidden(tokens, None, compute)[:, :-1] for each in (model, reference))
    heads = model.head_weight(), reference.head_weight()

    @jax.checkpoint
    def of_tile(tile: tuple) -> Array:
        ours, theirs = (distribution(rows, head, temperature, None) for rows, head in zip(tile, heads, strict=True))
        return (jnp.exp(ours) * (ours - theirs)).sum(axis=-1)

    found = in_tiles(of_tile, (hidden.reshape(-1, hidden.shape[-1]), other.reshape(-1, other.shape[-1])))
    return jnp.pad(found.reshape(tokens.shape[0], -1), ((0, 0), (1, 0)))


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
    """Map a function of [tile, ...] arrays over their rows, padded with zeros to whole tiles; None stays None."""
    count = jax.tree.leaves(arrays)[0].shape[0]
    size = min(TILE_TOKENS, count)

    def tiles(array: Array) -> Array:
        padded = jnp.pad(array, ((0, -count % size), *((0, 0) for _ in array.shape[1:])))
        return padded.reshape(-1, size, *array.shape[1:])

    found = jax.lax.map(of_tile, jax.tree.map(tiles, arrays))
    return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:])[:count], found)
