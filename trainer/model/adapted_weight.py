"""A weight with a low-rank adapter beside it, whose input is dropped at random: what a weight is in a step with dropout."""

import equinox as eqx
import haliax as hax
import jax
from haliax import NamedArray

RANK, BATCH, KEY = "lora", "batch", "key"


class DroppedWeight(eqx.Module):
    """y = x W + scale * (x * m / (1 - rate)) A B, where m is 0 with probability `rate` (Hu et al. 2021, arXiv 2106.09685).

    Every example has a key of its own, so its mask does not depend on the examples beside it.
    """

    base: NamedArray
    down: NamedArray
    up: NamedArray
    keys: NamedArray
    """[batch, key], uint32: a key of `jax.random` for each example."""
    scale: float = eqx.field(static=True)
    rate: float = eqx.field(static=True)

    def addition(self, x: NamedArray, axis: str | tuple[str, ...]) -> NamedArray:
        """What the adapter adds to the product of `x` with the base, over the axes that the base reads from."""
        dropped = hax.where(self.kept(x), x / (1 - self.rate), 0.0).astype(x.dtype)
        low = hax.dot(dropped, self.down.astype(x.dtype), axis=axis)
        return self.scale * hax.dot(low, self.up.astype(x.dtype), axis=RANK)

    def kept(self, x: NamedArray) -> NamedArray:
        """The mask of an input: true where a value is kept."""
        batch = x.resolve_axis(BATCH)
        rest = tuple(each for each in x.axes if each.name != BATCH)
        shape = tuple(each.size for each in rest)
        masks = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - self.rate, shape))(self.keys.rearrange((BATCH, KEY)).array)
        return hax.named(masks, (batch, *rest)).rearrange(x.axes)


def bare(weight: NamedArray | DroppedWeight) -> NamedArray:
    """The weight alone."""
    return weight.base if isinstance(weight, DroppedWeight) else weight
