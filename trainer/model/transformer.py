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
from haliax.nn.scan import ScanCheckpointPolicy, Stacked
from jax.extend.core import Primitive
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from trainer.model.decoding import TransformerDecoder
from trainer.model.layers import Attention, Axes, Read, RmsNorm
from trainer.spec.compute import Compute, ComputeConfig, Remat, Work, resolve
from trainer.spec.decoder import DecoderConfig
from trainer.spec.roles import EMBEDDING, HEAD

SAVED_NAMES = ("attention", "mlp")
"""What `remat: named` keeps of a layer: the output of attention and the two products inside the MLP. Norms, rotations and the
four attention projections are computed again. Inside attention nothing is computed again if the back-end names its softmax
denominators (blocked, splash, cudnn); reference and xla compute their scores again."""

READING = ComputeConfig(layers="scan")
"""How a model is computed when nothing is trained: many batch shapes, each compiled once and used a few times."""


class Block(Protocol):
    """One layer. It states the order of norms, attention and MLP once, for training, cached decoding and trees alike."""

    attention: Attention

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> NamedArray:
        """The residual stream after this layer. `read(attention, y)` is the attention's output for the input `y`."""
        ...


class Transformer(eqx.Module):
    """Token ids to hidden states and logits; a `trainer.model.protocol.LanguageModel`."""

    embedding: NamedArray = field(metadata=EMBEDDING)
    blocks: Stacked
    norm: RmsNorm
    head: NamedArray | None = field(metadata=HEAD)
    sliding_window: int | None = eqx.field(static=True)

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
        how = compute or self.resolved(READING, tokens.shape[1], segment_ids is not None)
        x = hax.auto_sharded(self.embedding.take("vocab", hax.named(tokens, ("batch", "position"))).astype(how.dtype))

        def read(attention: Attention, y: NamedArray) -> NamedArray:
            return attention(y, segment_ids, self.sliding_window, how)

        def layer(x: NamedArray, block: Block) -> NamedArray:
            return block(x, read, how)

        folded = hax.fold(
            eqx.filter_checkpoint(layer, policy=is_kept, prevent_cse=False) if how.remat == "named" else layer,
            self.blocks.Block,
            remat=REMATS[how.remat],
            unroll=self.blocks.Block.size if how.unrolled else 1,
        )(x, self.blocks.stacked)
        return self.norm(folded).rearrange(("batch", "position", "embed")).array

    def hidden_in_tree(
        self, tokens: Int[Array, " S"], positions: Int[Array, " S"], reach: Bool[Array, "S S"]
    ) -> Float[Array, "S D"]:
        """Hidden states where token `s` has the position `positions[s]` and attends where `reach[s]` is true.

        `reach` names ancestors (`trainer.shared_prefixes`); a sliding window counts positions, not places in the row.
        """
        named, query = hax.named(tokens, "position"), hax.named(positions, "position")
        key = query.rename({"position": "key_position"})
        allowed = hax.named(reach, ("position", "key_position"))
        if self.sliding_window is not None:
            allowed = allowed & (query.broadcast_axis(key.resolve_axis("key_position")) - key < self.sliding_window)

        def read(attention: Attention, y: NamedArray) -> NamedArray:
            return attention.attend(y, *attention.keys_values(y, query), query, allowed)

        def layer(x: NamedArray, block: Block) -> NamedArray:
            return block(x, read)

        x = hax.fold(layer, self.blocks.Block)(self.embedding.take("vocab", named), self.blocks.stacked)
        return self.norm(x).rearrange(("position", "embed")).array

    def resolved(self, config: ComputeConfig, seq_len: int, segmented: bool) -> Compute:
        """What a declared way to compute means for this model on this machine."""
        size = self.blocks.stacked.attention.w_k.resolve_axis("head_dim").size
        work = Work(seq_len, size, segmented, self.sliding_window, self.blocks.Block.size)
        return resolve(config, jax.default_backend(), work)

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix; the embedding if the two are tied."""
        return (self.embedding if self.head is None else self.head).rearrange(("vocab", "embed")).array

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        """Logits of the token after each position. Training and scoring use `trainer.model.cross_entropy` instead."""
        return jnp.einsum("bsd,vd->bsv", self.hidden(tokens, segment_ids), self.head_weight())

    def decoder(self) -> TransformerDecoder:
        """The same model for decoding. It copies the parameters: drop the model where memory is short."""
        stacked, axis = self.blocks.stacked, self.blocks.Block.name

        def layer(number: int) -> Block:
            return jax.tree.map(lambda named: named[axis, number], stacked, is_leaf=lambda leaf: isinstance(leaf, NamedArray))

        blocks = tuple(layer(number) for number in range(self.blocks.Block.size))
        return TransformerDecoder(self.embedding, blocks, self.norm, self.head, self.sliding_window)


REMATS: dict[Remat, ScanCheckpointPolicy] = {
    "none": ScanCheckpointPolicy(disable=True),
    "full": ScanCheckpointPolicy(simple=True),
    "named": ScanCheckpointPolicy(disable=True),  # a layer has a policy of its own, `is_kept`
    "offload": ScanCheckpointPolicy(save_carries="offload"),
}
"""What the backward pass computes again, in haliax's terms."""


def is_kept(primitive: Primitive, *values: object, **params: object) -> bool:
    """The policy of `remat: named`: keep `SAVED_NAMES` and both results of cuDNN's forward call.

    cuDNN's softmax denominators are an output of its call, and no name can be given to them from here.
    """
    of_name = jax.checkpoint_policies.save_only_these_names(*SAVED_NAMES)
    return primitive.name.startswith("dot_product_attention_fwd") or bool(of_name(primitive, *values, **params))
