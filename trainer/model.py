"""A small Llama with named axes inside (haliax) and plain arrays at its border.

Shapes: B batch, S sequence, V vocabulary. Layers are stacked and folded (one compiled block, compile time independent of
depth) or unrolled. Parameters are float32; a weight is cast to what it is multiplied with, so activations say the precision
of products. Norms, rotations, softmax and loss are float32. How it is computed is `trainer.compute`'s.
"""

import math

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.nn.scan import ScanCheckpointPolicy, Stacked
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jaxtyping import Array, Float, Int, PRNGKeyArray

from trainer.attention import attention
from trainer.compute import Compute, ComputeConfig, Remat, Work, resolve
from trainer.config import Llama3RopeScaling, LlamaConfig
from trainer.cross_entropy import row_nll, weighted_objective
from trainer.mesh import is_spread
from trainer.products import products, swiglu
from trainer.rms_norm import rms_norm
from trainer.rotary import rotate

SAVED_NAMES = ("attention", "mlp")
"""What `remat: named` keeps of a layer: what attention read, and the MLP's two products on their way up. Norms, rotations and
attention's four projections are made again. Of attention itself nothing is where its back-end keeps its denominators along
(blocked, splash, cudnn); reference and xla make their scores again."""


READING = ComputeConfig(layers="scan")
"""How a model is run where nobody trains it: for many shapes of batches, each compiled once and used a few times."""


class Axes(eqx.Module):
    """The named axes of a config."""

    embed: Axis = eqx.field(static=True)
    mlp: Axis = eqx.field(static=True)
    kv_heads: Axis = eqx.field(static=True)
    group: Axis = eqx.field(static=True)
    head_dim: Axis = eqx.field(static=True)
    vocab: Axis = eqx.field(static=True)
    layers: Axis = eqx.field(static=True)

    @staticmethod
    def of(config: LlamaConfig) -> "Axes":
        return Axes(
            embed=Axis("embed", config.hidden_dim),
            mlp=Axis("mlp", config.intermediate_dim),
            kv_heads=Axis("kv_heads", config.num_kv_heads),
            group=Axis("q_group", config.num_heads // config.num_kv_heads),
            head_dim=Axis("head_dim", config.head_size),
            vocab=Axis("vocab", config.vocab_size),
            layers=Axis("layers", config.num_layers),
        )


class RmsNorm(eqx.Module):
    """Root-mean-square norm with a learned scale, over the axis of its weight."""

    weight: NamedArray
    eps: float = eqx.field(static=True)

    def __call__(self, x: NamedArray) -> NamedArray:
        last = self.weight.axes[-1]
        rows = x.rearrange((*(axis for axis in x.axes if axis != last), last))
        return hax.named(rms_norm(rows.array, self.weight.array, self.eps), rows.axes).rearrange(x.axes)


class Attention(eqx.Module):
    """Grouped-query attention with rotary embeddings, over what the mask allows."""

    w_q: NamedArray
    w_k: NamedArray
    w_v: NamedArray
    w_o: NamedArray
    q_norm: RmsNorm | None
    k_norm: RmsNorm | None
    rope_theta: float = eqx.field(static=True)
    rope_scaling: Llama3RopeScaling | None = eqx.field(static=True)

    @staticmethod
    def init(config: LlamaConfig, *, key: PRNGKeyArray) -> "Attention":
        a = Axes.of(config)
        k_q, k_k, k_v, k_o = jax.random.split(key, 4)
        std = config.initializer_range
        out_std = std / (2 * config.num_layers) ** 0.5  # GPT-2's residual scaling: variance stays flat with depth
        return Attention(
            w_q=hax.random.normal(k_q, (a.embed, a.kv_heads, a.group, a.head_dim)) * std,
            w_k=hax.random.normal(k_k, (a.embed, a.kv_heads, a.head_dim)) * std,
            w_v=hax.random.normal(k_v, (a.embed, a.kv_heads, a.head_dim)) * std,
            w_o=hax.random.normal(k_o, (a.kv_heads, a.group, a.head_dim, a.embed)) * out_std,
            q_norm=RmsNorm(hax.ones(a.head_dim), config.norm_eps) if config.qk_norm else None,
            k_norm=RmsNorm(hax.ones(a.head_dim), config.norm_eps) if config.qk_norm else None,
            rope_theta=config.rope_theta,
            rope_scaling=config.rope_scaling,
        )

    def __call__(self, x: NamedArray, segment_ids: Array | None, window: int | None, compute: Compute) -> NamedArray:
        positions = hax.arange(x.resolve_axis("position"))
        q, k, v = _dots(x, (self.w_q, self.w_k, self.w_v), "embed", compute)
        q, k = self._placed(q, self.q_norm, positions), self._placed(k, self.k_norm, positions)
        order = ("batch", "position", "kv_heads", "q_group", "head_dim")
        k, v = (each.rearrange(("batch", "position", "kv_heads", "head_dim")).array for each in (k, v))
        read = hax.named(attention(q.rearrange(order).array, k, v, segment_ids, window, compute), order)
        return _dots(read, (self.w_o,), ("kv_heads", "q_group", "head_dim"), compute)[0]

    def queries(self, x: NamedArray, positions: NamedArray) -> NamedArray:
        """Rotated queries of every position."""
        return self._placed(_dot(x, self.w_q, "embed"), self.q_norm, positions)

    def keys_values(self, x: NamedArray, positions: NamedArray) -> tuple[NamedArray, NamedArray]:
        """Rotated keys and values of every position, over `key_position`; all that later positions need of these."""
        k, v = self._placed(_dot(x, self.w_k, "embed"), self.k_norm, positions), _dot(x, self.w_v, "embed")
        return k.rename({"position": "key_position"}), v.rename({"position": "key_position"})

    def _placed(self, x: NamedArray, norm: RmsNorm | None, positions: NamedArray) -> NamedArray:
        """Queries or keys, normalized where the model does that, turned by their positions."""
        return rotate(x if norm is None else norm(x), self.rope_theta, positions, self.rope_scaling)

    def attend(self, x: NamedArray, k: NamedArray, v: NamedArray, positions: NamedArray, mask: NamedArray) -> NamedArray:
        """What the queries of `x` read where `mask` is true, from kept keys and values; for decoding, a few queries a call."""
        q = self.queries(x, positions)
        scale = q.resolve_axis("head_dim").size ** -0.5
        scores = hax.dot(q * scale, k, axis="head_dim")
        weights = hax.nn.softmax(hax.where(mask, scores, -1e9), axis="key_position")
        return hax.dot(hax.dot(weights, v, axis="key_position"), self.w_o, axis=("kv_heads", "q_group", "head_dim"))


class Mlp(eqx.Module):
    """SwiGLU."""

    w_gate: NamedArray
    w_up: NamedArray
    w_down: NamedArray

    @staticmethod
    def init(config: LlamaConfig, *, key: PRNGKeyArray) -> "Mlp":
        a = Axes.of(config)
        k_g, k_u, k_d = jax.random.split(key, 3)
        std = config.initializer_range
        return Mlp(
            w_gate=hax.random.normal(k_g, (a.embed, a.mlp)) * std,
            w_up=hax.random.normal(k_u, (a.embed, a.mlp)) * std,
            w_down=hax.random.normal(k_d, (a.mlp, a.embed)) * (std / (2 * config.num_layers) ** 0.5),
        )

    def __call__(self, x: NamedArray, compute: Compute | None = None) -> NamedArray:
        if compute is not None and compute.by_rows and not is_spread():
            rest, weights = x.axes[:-1], (self.w_gate, self.w_up, self.w_down)
            rows = x.array.reshape(-1, x.axes[-1].size)
            return hax.named(swiglu(rows, *(weight.array for weight in weights)).reshape(x.array.shape), (*rest, x.axes[-1]))
        opened, carried = (_dot(x, weight, "embed") for weight in (self.w_gate, self.w_up))
        opened, carried = (hax.named(checkpoint_name(each.array, "mlp"), each.axes) for each in (opened, carried))
        return _dot(hax.nn.silu(opened) * carried, self.w_down, "mlp")


class Block(eqx.Module):
    """Pre-norm attention and MLP, each added to the residual stream."""

    attention_norm: RmsNorm
    attention: Attention
    mlp_norm: RmsNorm
    mlp: Mlp

    @staticmethod
    def init(config: LlamaConfig, *, key: PRNGKeyArray) -> "Block":
        a = Axes.of(config)
        k_attention, k_mlp = jax.random.split(key)
        return Block(
            attention_norm=RmsNorm(hax.ones(a.embed), config.norm_eps),
            attention=Attention.init(config, key=k_attention),
            mlp_norm=RmsNorm(hax.ones(a.embed), config.norm_eps),
            mlp=Mlp.init(config, key=k_mlp),
        )

    def __call__(self, x: NamedArray, segment_ids: Array | None, window: int | None, compute: Compute) -> NamedArray:
        x = x + self.attention(self.attention_norm(x), segment_ids, window, compute)
        return hax.auto_sharded(x + self.mlp(self.mlp_norm(x), compute))  # by the batch, so weights come to it (`trainer.mesh`)


def _dot(x: NamedArray, weight: NamedArray, axis: str | tuple[str, ...]) -> NamedArray:
    """Product in the precision of `x`."""
    return hax.dot(x, weight.astype(x.dtype), axis=axis)


def _dots(
    x: NamedArray, weights: tuple[NamedArray, ...], axis: str | tuple[str, ...], compute: Compute
) -> tuple[NamedArray, ...]:
    """Products with several weights; where `compute` says so, of rows with matrices (`trainer.products`)."""
    names = (axis,) if isinstance(axis, str) else axis
    if not compute.by_rows or is_spread():
        return tuple(_dot(x, weight, axis) for weight in weights)
    inner = [x.resolve_axis(name) for name in names]
    rest = [each for each in x.axes if each not in inner]
    size = math.prod(each.size for each in inner)
    outer = [[each for each in weight.axes if each.name not in names] for weight in weights]
    matrices = tuple(w.rearrange((*inner, *out)).array.reshape(size, -1) for w, out in zip(weights, outer, strict=True))
    made = products(x.rearrange((*rest, *inner)).array.reshape(-1, size), matrices)
    return tuple(
        hax.named(each.reshape([a.size for a in (*rest, *out)]), (*rest, *out)) for each, out in zip(made, outer, strict=True)
    )


class Llama(eqx.Module):
    """Token ids to logits."""

    embedding: NamedArray
    blocks: Stacked[Block]
    norm: RmsNorm
    head: NamedArray | None
    sliding_window: int | None = eqx.field(static=True)

    @staticmethod
    def init(config: LlamaConfig, *, key: PRNGKeyArray) -> "Llama":
        a = Axes.of(config)
        k_embedding, k_blocks, k_head = jax.random.split(key, 3)
        std = config.initializer_range
        return Llama(
            embedding=hax.random.normal(k_embedding, (a.vocab, a.embed)) * std,
            blocks=Stacked.init(a.layers, Block)(config, key=jax.random.split(k_blocks, config.num_layers)),
            norm=RmsNorm(hax.ones(a.embed), config.norm_eps),
            head=None if config.tie_embeddings else hax.random.normal(k_head, (a.vocab, a.embed)) * std,
            sliding_window=config.sliding_window,
        )

    def hidden(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None, compute: Compute | None = None
    ) -> Float[Array, "B S D"]:
        """What the head is multiplied with; position `s` depends on tokens `0..s` only, of its own segment where ids are given.

        Positions do not begin again in a segment: rotary embeddings see only differences of positions. Without `compute`,
        what `READING` means on this machine.
        """
        compute = compute or self.resolved(READING, tokens.shape[1], segment_ids is not None)
        x = hax.auto_sharded(self.embedding.take("vocab", hax.named(tokens, ("batch", "position"))).astype(compute.dtype))

        def layer(x: NamedArray, block: Block) -> NamedArray:
            return block(x, segment_ids, self.sliding_window, compute)

        folded = hax.fold(
            eqx.filter_checkpoint(layer, policy=is_kept, prevent_cse=False) if compute.remat == "named" else layer,
            self.blocks.Block,
            remat=REMATS[compute.remat],
            unroll=self.blocks.Block.size if compute.unrolled else 1,
        )(x, self.blocks.stacked)
        return self.norm(folded).rearrange(("batch", "position", "embed")).array

    def resolved(self, config: ComputeConfig, seq_len: int, segmented: bool) -> Compute:
        """What a declared way to compute means for this model on this machine."""
        size = self.blocks.stacked.attention.w_k.resolve_axis("head_dim").size
        work = Work(seq_len, size, segmented, self.sliding_window, self.blocks.Block.size)
        return resolve(config, jax.default_backend(), work)

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix: the embedding where the two are tied."""
        return (self.embedding if self.head is None else self.head).rearrange(("vocab", "embed")).array

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        """Logits of the token after each position. Training and scoring never ask for them: `trainer.cross_entropy`."""
        return jnp.einsum("bsd,vd->bsv", self.hidden(tokens, segment_ids), self.head_weight())


REMATS: dict[Remat, ScanCheckpointPolicy] = {
    "none": ScanCheckpointPolicy(disable=True),
    "full": ScanCheckpointPolicy(simple=True),
    "named": ScanCheckpointPolicy(disable=True),  # a layer has a policy of its own, `is_kept`
    "offload": ScanCheckpointPolicy(save_carries="offload"),
}
"""What backward makes again, as haliax says it."""


def is_kept(primitive: Primitive, *values: object, **told: object) -> bool:
    """The policy of `remat: named`: `SAVED_NAMES`, and both results of cuDNN's forward call, the denominators of which have no
    name that could be given from here."""
    of_name = jax.checkpoint_policies.save_only_these_names(*SAVED_NAMES)
    return primitive.name.startswith("dot_product_attention_fwd") or bool(of_name(primitive, *values, **told))


def token_nll(model: Llama, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """Nats of tokens 1..S-1 given their prefixes."""
    x = model.hidden(tokens[:, :-1])
    nll, _ = row_nll(x.reshape(-1, x.shape[-1]), model.head_weight(), tokens[:, 1:].reshape(-1))
    return nll.reshape(tokens.shape[0], -1)


def loss_fn(
    model: Llama,
    tokens: Int[Array, "B S"],
    z_loss_weight: float,
    weights: Float[Array, "B S"] | None = None,
    segment_ids: Int[Array, "B S"] | None = None,
    compute: Compute | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(objective, next-token loss in nats); they differ by the z-loss. Only the objective has a gradient.

    The loss is the mean over the tokens after each sequence's first, or with `weights`, each token's as what is to be
    predicted, sum(weight x nll) / sum(weight): nought where no token of the batch counts, so that such a batch moves nothing.
    Every position is computed, the last of each sequence with a share of nought, which keeps shapes round.
    """
    x = model.hidden(tokens, segment_ids, compute)
    of_targets = jnp.ones(tokens.shape, jnp.float32) if weights is None else weights
    of_targets = jnp.roll(of_targets.at[:, 0].set(0.0), -1, axis=1).reshape(-1)
    total = of_targets.sum()
    shares = of_targets / jnp.where(total > 0, total, 1.0)
    targets = jnp.roll(tokens, -1, axis=1).reshape(-1)
    return weighted_objective(x.reshape(-1, x.shape[-1]), model.head_weight().astype(x.dtype), targets, shares, z_loss_weight)
