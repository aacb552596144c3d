"""A small Llama with named axes inside (haliax) and plain arrays at its border.

Shapes: B batch, S sequence, V vocabulary. Layers are stacked and folded (one compiled block, compile time independent of
depth). Computation is float32: CPUs gain nothing from bfloat16 (research/training_levanter_haliax_grug.md, section 6).
"""

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.nn.scan import Stacked
from jaxtyping import Array, Float, Int, PRNGKeyArray

from trainer.config import Llama3RopeScaling, LlamaConfig
from trainer.cross_entropy import mean_objective, row_nll, weighted_objective


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
            head_dim=Axis("head_dim", config.head_dim),
            vocab=Axis("vocab", config.vocab_size),
            layers=Axis("layers", config.num_layers),
        )


class RmsNorm(eqx.Module):
    """Root-mean-square norm with a learned scale, over the axis of its weight."""

    weight: NamedArray
    eps: float = eqx.field(static=True)

    def __call__(self, x: NamedArray) -> NamedArray:
        variance = hax.mean(hax.square(x), axis=self.weight.axes[-1].name)
        return x * hax.rsqrt(variance + self.eps) * self.weight


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

    def __call__(self, x: NamedArray, mask: NamedArray) -> NamedArray:
        positions = hax.arange(x.resolve_axis("position"))
        return self.attend(x, *self.keys_values(x, positions), positions, mask)

    def keys_values(self, x: NamedArray, positions: NamedArray) -> tuple[NamedArray, NamedArray]:
        """Rotated keys and values of every position, over `key_position`; all that later positions need of these."""
        k = hax.dot(x, self.w_k, axis="embed")
        k = k if self.k_norm is None else self.k_norm(k)
        k = rotate(k, self.rope_theta, positions, self.rope_scaling).rename({"position": "key_position"})
        v = hax.dot(x, self.w_v, axis="embed").rename({"position": "key_position"})
        return k, v

    def attend(self, x: NamedArray, k: NamedArray, v: NamedArray, positions: NamedArray, mask: NamedArray) -> NamedArray:
        """What the queries of `x` read from keys and values where `mask` is true."""
        q = hax.dot(x, self.w_q, axis="embed")
        q = q if self.q_norm is None else self.q_norm(q)
        q = rotate(q, self.rope_theta, positions, self.rope_scaling)
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

    def __call__(self, x: NamedArray) -> NamedArray:
        gate = hax.nn.silu(hax.dot(x, self.w_gate, axis="embed"))
        return hax.dot(gate * hax.dot(x, self.w_up, axis="embed"), self.w_down, axis="mlp")


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

    def __call__(self, x: NamedArray, mask: NamedArray) -> NamedArray:
        x = x + self.attention(self.attention_norm(x), mask)
        return hax.auto_sharded(x + self.mlp(self.mlp_norm(x)))  # by the batch, so weights come to it (`trainer.mesh`)


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

    def hidden(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S D"]:
        """What the head is multiplied with; position `s` depends on tokens `0..s` only, of its own segment where ids are given.

        Positions do not begin again in a segment: rotary embeddings see only differences of positions.
        """
        named = hax.named(tokens, ("batch", "position"))
        position = named.resolve_axis("position")
        x = hax.auto_sharded(self.embedding.take("vocab", named))
        mask = attention_mask(position, self.sliding_window, segment_ids)
        return self.norm(self.blocks.fold(x, mask)).rearrange(("batch", "position", "embed")).array

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix: the embedding where the two are tied."""
        return (self.embedding if self.head is None else self.head).rearrange(("vocab", "embed")).array

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        """Logits of the token after each position. Training and scoring never ask for them: `trainer.cross_entropy`."""
        return jnp.einsum("bsd,vd->bsv", self.hidden(tokens, segment_ids), self.head_weight())


def attention_mask(position: Axis, sliding_window: int | None, segment_ids: Int[Array, "B S"] | None) -> NamedArray:
    """True where a position may look: at itself and before, within the window, in its own segment."""
    key_position = position.alias("key_position")
    query, key = hax.arange(position).broadcast_axis(key_position), hax.arange(key_position)
    mask = query >= key
    if sliding_window is not None:
        mask = mask & (query - key < sliding_window)
    if segment_ids is not None:
        segments = hax.named(segment_ids, ("batch", "position"))
        mask = mask & (segments.broadcast_axis(key_position) == segments.rename({"position": "key_position"}))
    return mask


def rope_frequencies(half: int, theta: float, scaling: Llama3RopeScaling | None) -> Float[Array, " half"]:
    """Radians a position of each pair: theta ** (-i / half), the slow ones stretched where a scaling is given.

    With w the wavelength in positions and n = original_max_seq_len: f where w < n / high_freq_factor, f / factor where w > n /
    low_freq_factor, and between them (1 - s) f / factor + s f with s = (n / w - low) / (high - low). Source: Llama 3.1
    (arXiv 2407.21783; the formula is that of `rope_type: llama3` in transformers).
    """
    frequencies = theta ** (-jnp.arange(half) / half)
    if scaling is None:
        return frequencies
    turns = scaling.original_max_seq_len * frequencies / (2 * jnp.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def rotate(x: NamedArray, theta: float, positions: NamedArray, scaling: Llama3RopeScaling | None = None) -> NamedArray:
    """Rotary position embedding, half-split layout (RoFormer; Llama's convention in transformers)."""
    head_dim = x.resolve_axis("head_dim")
    half = head_dim.resize(head_dim.size // 2)
    frequencies = hax.named(rope_frequencies(half.size, theta, scaling), half)
    angles = positions.astype(jnp.float32).broadcast_axis(half) * frequencies
    cos, sin = hax.cos(angles), hax.sin(angles)
    first, second = x["head_dim", : half.size], x["head_dim", half.size :]
    return hax.concatenate("head_dim", [first * cos - second * sin, second * cos + first * sin])


def token_nll(model: Llama, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """Nats of tokens 1..S-1 given their prefixes."""
    nll, _ = row_nll(*_rows(model, tokens))
    return nll.reshape(tokens.shape[0], -1)


def loss_fn(
    model: Llama,
    tokens: Int[Array, "B S"],
    z_loss_weight: float,
    weights: Float[Array, "B S"] | None = None,
    segment_ids: Int[Array, "B S"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(objective, next-token loss in nats); they differ by the z-loss. Only the objective has a gradient.

    The loss is the mean over the tokens after each sequence's first, or with `weights`, each token's as what is to be
    predicted, sum(weight x nll) / sum(weight): nought where no token of the batch counts, so that such a batch moves nothing.
    """
    if weights is None:
        return mean_objective(*_rows(model, tokens, segment_ids), z_loss_weight)
    of_targets = weights[:, 1:].reshape(-1)
    total = of_targets.sum()
    return weighted_objective(*_rows(model, tokens, segment_ids), of_targets / jnp.where(total > 0, total, 1.0), z_loss_weight)


def _rows(
    model: Llama, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None
) -> tuple[Float[Array, "N D"], Float[Array, "V D"], Int[Array, " N"]]:
    x = model.hidden(tokens[:, :-1], None if segment_ids is None else segment_ids[:, :-1])
    return x.reshape(-1, x.shape[-1]), model.head_weight(), tokens[:, 1:].reshape(-1)
