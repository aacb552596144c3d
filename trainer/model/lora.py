"""A model with a low-rank adapter: the base is fixed, the adapter is trained, and the sum of both is computed at every use.

The sum takes memory for one more copy of the targeted weights. In return every way to read a model (training, decoding,
scoring in trees) is the base's own code.
"""

from dataclasses import field

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from trainer.model.protocol import Decoder
from trainer.model.router import Routing
from trainer.model.transformer import Transformer
from trainer.spec.compute import Compute, ComputeConfig
from trainer.spec.lora import LoraConfig
from trainer.spec.roles import MATRIX, STATE

RANK, LAYERS, RESIDUAL = "lora", "layers", "embed"
IN_ATTENTION = ("w_q", "w_k", "w_v", "w_o")


class Factors(eqx.Module):
    """A [layers, in..., rank] and B [layers, rank, out...] of each target, stacked over layers."""

    down: dict[str, NamedArray] = field(metadata=MATRIX)
    up: dict[str, NamedArray] = field(metadata=MATRIX)


class Adapter(eqx.Module):
    """The trained part."""

    stacked: Factors


class Adapted(eqx.Module):
    """Base and adapter; a `trainer.model.protocol.LanguageModel`."""

    base: Transformer = field(metadata=STATE)
    adapter: Adapter
    scale: float = eqx.field(static=True)

    @staticmethod
    def init(base: Transformer, config: LoraConfig, *, key: PRNGKeyArray) -> "Adapted":
        """A uniform in +-1 / sqrt(inputs) and B zero, as in PEFT: the model begins as its base.

        Raises: ValueError naming a target that the model lacks.
        """
        down, up = {}, {}
        for name, key_of in zip(config.targets, jax.random.split(key, len(config.targets)), strict=True):
            weight = _weight(base, name)
            layers, inputs, outputs = _sides(weight)
            rank = Axis(RANK, config.rank)
            bound = 1 / jnp.sqrt(hax.axis_size(inputs))
            down[name] = hax.random.uniform(key_of, (layers, *inputs, rank), minval=-bound, maxval=bound)
            up[name] = hax.zeros((layers, rank, *outputs))
        return Adapted(base, Adapter(Factors(down, up)), config.scale)

    def merged(self) -> Transformer:
        """The base with the adapter added to its weights."""
        names = tuple(self.adapter.stacked.down)
        return eqx.tree_at(lambda model: [_weight(model, name) for name in names], self.base, [self._sum(n) for n in names])

    def _sum(self, name: str) -> NamedArray:
        weight, factors = _weight(self.base, name), self.adapter.stacked
        product = hax.dot(factors.down[name], factors.up[name], axis=RANK, precision=jax.lax.Precision.HIGHEST)
        return weight + self.scale * product.rearrange(weight.axes)

    def hidden(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None, compute: Compute | None = None
    ) -> Float[Array, "B S D"]:
        return self.merged().hidden(tokens, segment_ids, compute)

    def routed(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None, how: Compute
    ) -> tuple[Float[Array, "B S D"], Routing | None]:
        return self.merged().routed(tokens, segment_ids, how)

    def hidden_in_tree(
        self, tokens: Int[Array, " S"], positions: Int[Array, " S"], reach: Bool[Array, "S S"]
    ) -> Float[Array, "S D"]:
        return self.merged().hidden_in_tree(tokens, positions, reach)

    def head_weight(self) -> Float[Array, "V D"]:
        """The base's: no head has an adapter."""
        return self.base.head_weight()

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        return self.merged()(tokens, segment_ids)

    def resolved(self, config: ComputeConfig, seq_len: int, segmented: bool) -> Compute:
        return self.base.resolved(config, seq_len, segmented)

    def decoder(self) -> Decoder:
        return self.merged().decoder()


def _weight(model: Transformer, name: str) -> NamedArray:
    block = model.blocks.stacked
    owner = block.attention if name in IN_ATTENTION else getattr(block, "mlp", None)
    if owner is None or not hasattr(owner, name):
        raise ValueError(f"run.adapter.targets has {name}, which the layers of {type(block).__name__} lack")
    return getattr(owner, name)


def _sides(weight: NamedArray) -> tuple[Axis, tuple[Axis, ...], tuple[Axis, ...]]:
    """(layers, axes that the weight reads from, axes that it writes to): one side is the residual stream alone."""
    layers, *rest = weight.axes
    assert layers.name == LAYERS
    if rest[0].name == RESIDUAL:
        return layers, (rest[0],), tuple(rest[1:])
    return layers, tuple(rest[:-1]), (rest[-1],)
