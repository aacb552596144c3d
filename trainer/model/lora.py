"""A model with a low-rank adapter: the base is fixed, the adapter is trained, and the sum of both is computed at every use.

The sum takes memory for one more copy of the targeted weights. In return every way to read a model (training, decoding,
scoring in trees) is the base's own code. Only a training step with dropout computes the adapter beside each weight, because
dropout of the adapter's input is no change of a weight.
"""

from dataclasses import field

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from trainer.model.adapted_weight import BATCH, KEY, RANK, DroppedWeight
from trainer.model.protocol import Decoder
from trainer.model.router import Routing
from trainer.model.transformer import Transformer
from trainer.spec.compute import Compute, ComputeConfig
from trainer.spec.lora import LoraConfig
from trainer.spec.roles import MATRIX, STATE

LAYERS, RESIDUAL = "layers", "embed"
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
    rate: float = eqx.field(default=0.0, static=True)
    """Share of the adapter's inputs that a training step drops."""
    row_keys: UInt32[Array, "R 2"] | None = None
    """A key for each row of the batch, in a training step with dropout; None: nothing is dropped."""

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
        return Adapted(base, Adapter(Factors(down, up)), config.scale, config.dropout)

    def merged(self) -> Transformer:
        """The base with the adapter added to its weights."""
        names = tuple(self.adapter.stacked.down)
        return eqx.tree_at(lambda model: [_weight(model, name) for name in names], self.base, [self._sum(n) for n in names])

    def dropping(self, row_keys: UInt32[Array, "R 2"]) -> "Adapted":
        """The same model in a training step that drops by these keys, one for each row of the batch."""
        return Adapted(self.base, self.adapter, self.scale, self.rate, row_keys)

    def _read_by(self, rows: int) -> Transformer:
        """The model that reads `rows` sequences: merged, or with the adapter beside each weight in a step with dropout."""
        if self.row_keys is None:
            return self.merged()
        names = tuple(self.adapter.stacked.down)
        weights = [self._dropped(name, number, rows) for number, name in enumerate(names)]
        return eqx.tree_at(lambda model: [_weight(model, name) for name in names], self.base, weights)

    def _dropped(self, name: str, number: int, rows: int) -> DroppedWeight:
        """The weight of a target in all layers. A row of the batch may be several sequences (the sides of a pair)."""
        weight, factors = _weight(self.base, name), self.adapter.stacked
        assert self.row_keys is not None
        layers, sides = weight.resolve_axis(LAYERS), rows // len(self.row_keys)
        folded = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))  # every key with every number
        per_row = folded(self.row_keys, jnp.arange(sides)).reshape(rows, 2)
        places = number * layers.size + jnp.arange(layers.size)
        keys = hax.named(folded(per_row, places).swapaxes(0, 1), (layers, Axis(BATCH, rows), Axis(KEY, 2)))
        return DroppedWeight(weight, factors.down[name], factors.up[name], keys, self.scale, self.rate)

    def _sum(self, name: str) -> NamedArray:
        weight, factors = _weight(self.base, name), self.adapter.stacked
        product = hax.dot(factors.down[name], factors.up[name], axis=RANK, precision=jax.lax.Precision.HIGHEST)
        return weight + self.scale * product.rearrange(weight.axes)

    def hidden(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None, compute: Compute | None = None
    ) -> Float[Array, "B S D"]:
        return self._read_by(len(tokens)).hidden(tokens, segment_ids, compute)

    def routed(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None, how: Compute
    ) -> tuple[Float[Array, "B S D"], Routing | None]:
        return self._read_by(len(tokens)).routed(tokens, segment_ids, how)

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
