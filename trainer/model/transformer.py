"""The decoder stack that dense families share: embedding, blocks, final norm, head. A family brings its block.

Shapes: B batch, S sequence, D hidden, V vocabulary. Layers are stacked and folded (one compiled block, so compile time does
not grow with depth) or unrolled; `trainer.spec.compute` decides.
"""

from dataclasses import field
from typing import Protocol, Self

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import NamedArray
from haliax.nn.scan import Stacked
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from trainer.model.decoding import TransformerDecoder
from trainer.model.gated_norm import GatedNorm
from trainer.model.layer_folds import Layer, LayerKind, through_layers
from trainer.model.layers import Attention, Axes, Read, RmsNorm
from trainer.model.router import Routing
from trainer.spec.compute import Compute, ComputeConfig, Remat, Work, resolve
from trainer.spec.decoder import DecoderConfig
from trainer.spec.roles import EMBEDDING, HEAD

READING = ComputeConfig(layers="scan")
"""How a model is computed when nothing is trained: many batch shapes, each compiled once and used a few times."""


class Block(Protocol):
    """One layer. It states the order of norms, attention and MLP once, for training, cached decoding and trees alike."""

    attention: Attention

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> tuple[NamedArray, Routing | None]:
        """The residual stream after this layer, and what its router did in training; None for a layer without experts.

        `read(attention, y)` is the attention's output for the input `y`. `compute` is None outside training.
        """
        ...


class Transformer(eqx.Module):
    """Token ids to hidden states and logits; a `trainer.model.protocol.LanguageModel`."""

    embedding: NamedArray = field(metadata=EMBEDDING)
    blocks: Stacked
    norm: RmsNorm | GatedNorm
    head: NamedArray | None = field(metadata=HEAD)
    sliding_window: int | None = eqx.field(static=True)
    first: Stacked | None = None
    """Layers of another class before `blocks`: the dense ones of a mixture of experts."""
    embedding_norm: RmsNorm | GatedNorm | None = None
    kinds: tuple[LayerKind, ...] | None = eqx.field(default=None, static=True)
    """The kind of every layer; None: all have the window `sliding_window`."""

    @classmethod
    def init(cls, config: DecoderConfig, block: type, *, key: PRNGKeyArray) -> Self:
        """Random parameters. `block` is the family's block, with `block.init(config, key=...)`."""
        a = Axes.of(config)
        k_embedding, k_blocks, k_head = jax.random.split(key, 3)
        std = config.initializer_range
        return cls(
            embedding=hax.random.normal(k_embedding, (a.vocab, a.embed)) * std,
            blocks=Stacked.init(a.layers, block)(config, key=jax.random.split(k_blocks, config.num_layers)),
            norm=RmsNorm.init(a.embed, config.norm_eps),
            head=None if config.tie_embeddings else hax.random.normal(k_head, (a.vocab, a.embed)) * std,
            sliding_window=config.window,
        )

    def hidden(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None, compute: Compute | None = None
    ) -> Float[Array, "B S D"]:
        """Hidden states; state `s` depends on tokens `0..s` only, of its own segment where ids are given.

        Positions do not restart in a segment: rotary embeddings see only differences of positions. Without `compute`, the
        model is computed as `READING` means on this machine.
        """
        return self.routed(tokens, segment_ids, compute or self.resolved(READING, tokens.shape[1], segment_ids is not None))[0]

    def routed(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None, how: Compute
    ) -> tuple[Float[Array, "B S D"], Routing | None]:
        """(`hidden`, what the routers did if `how.training`, with a leading axis of layers; None for a dense model)."""
        x = hax.auto_sharded(self.embedding.take("vocab", hax.named(tokens, ("batch", "position"))).astype(how.dtype))

        def layer(x: NamedArray, block: Block, kind: LayerKind) -> tuple[NamedArray, Routing | None]:
            def read(attention: Attention, y: NamedArray) -> NamedArray:
                return attention(y, segment_ids, kind.window, how, rotary=kind.rotary)

            return block(x, read, how)

        x, routing = self._through(layer, x, how.remat, unrolled=how.unrolled)
        return self.norm(x).rearrange(("batch", "position", "embed")).array, routing

    def _through(self, layer: Layer, x: NamedArray, remat: Remat, *, unrolled: bool) -> tuple[NamedArray, Routing | None]:
        """All layers after the norm of the embedding, and the outputs of the last stack."""
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        kinds = self.layer_kinds
        stacks = [stack for stack in (self.first, self.blocks) if stack is not None]
        routing = None
        for stack in stacks:
            mine, kinds = kinds[: stack.Block.size], kinds[stack.Block.size :]
            x, routing = through_layers(layer, stack, mine, x, remat, unrolled=unrolled)
        return x, routing

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last."""
        number = self.blocks.Block.size + (0 if self.first is None else self.first.Block.size)
        return self.kinds or (LayerKind(self.sliding_window),) * number

    def hidden_in_tree(
        self, tokens: Int[Array, " S"], positions: Int[Array, " S"], reach: Bool[Array, "S S"]
    ) -> Float[Array, "S D"]:
        """Hidden states where token `s` has the position `positions[s]` and attends where `reach[s]` is true.

        `reach` names ancestors (`trainer.shared_prefixes`); a sliding window counts positions, not places in the row.
        """
        named, query = hax.named(tokens, "position"), hax.named(positions, "position")
        key = query.rename({"position": "key_position"})
        allowed = hax.named(reach, ("position", "key_position"))
        distance = query.broadcast_axis(key.resolve_axis("key_position")) - key

        def layer(x: NamedArray, block: Block, kind: LayerKind) -> tuple[NamedArray, None]:
            mask = allowed if kind.window is None else allowed & (distance < kind.window)
            positions = query if kind.rotary else None

            def read(attention: Attention, y: NamedArray) -> NamedArray:
                return attention.attend(y, *attention.keys_values(y, positions), positions, mask)

            return block(x, read)[0], None

        x, _ = self._through(layer, self.embedding.take("vocab", named), "none", unrolled=False)
        return self.norm(x).rearrange(("position", "embed")).array

    def resolved(self, config: ComputeConfig, seq_len: int, segmented: bool) -> Compute:
        """What a declared way to compute means for this model on this machine."""
        size = self.blocks.stacked.attention.w_k.resolve_axis("head_dim").size
        windows = [kind.window for kind in self.layer_kinds if kind.window is not None]
        experts = getattr(self.blocks.stacked, "experts", None)
        work = Work(
            seq_len,
            size,
            segmented,
            max(windows, default=None),
            len(self.layer_kinds),
            experts=None
            if experts is None
            else tuple(experts.w_gate.resolve_axis(axis).size for axis in ("embed", "expert_mlp")),
            mixed_layers=len(set(self.layer_kinds)) > 1,
            vocab_size=self.embedding.resolve_axis("vocab").size,
        )
        capability = getattr(jax.devices()[0], "compute_capability", None)  # only GPUs have one
        return resolve(config, jax.default_backend(), work, capability)

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix; the embedding if the two are tied."""
        return (self.embedding if self.head is None else self.head).rearrange(("vocab", "embed")).array

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        """Logits of the token after each position. Training and scoring use `trainer.model.cross_entropy` instead."""
        return jnp.einsum("bsd,vd->bsv", self.hidden(tokens, segment_ids), self.head_weight())

    def decoder(self) -> TransformerDecoder:
        """The same model for decoding. It copies the parameters: drop the model where memory is short."""
        blocks = []
        for stack in (self.first, self.blocks):
            blocks += [] if stack is None else [_layer_of(stack, number) for number in range(stack.Block.size)]
        return TransformerDecoder(self.embedding, tuple(blocks), self.norm, self.head, self.layer_kinds, self.embedding_norm)


def _layer_of(stack: Stacked, number: int) -> Block:
    axis = stack.Block.name
    is_named = lambda leaf: isinstance(leaf, NamedArray)  # noqa: E731
    return jax.tree.map(lambda named: named[axis, number], stack.stacked, is_leaf=is_named)
