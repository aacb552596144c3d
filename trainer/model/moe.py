"""The blocks of a mixture of experts, and its model."""

import equinox as eqx
import haliax as hax
import jax
from haliax import NamedArray
from haliax.nn.scan import Stacked
from jaxtyping import PRNGKeyArray

from trainer.model.experts import Experts, SharedExpert
from trainer.model.gated_norm import GatedNorm, norm_of
from trainer.model.layer_folds import LayerKind
from trainer.model.layers import Attention, Axes, Read, RmsNorm, depth_scaled_std
from trainer.model.router import Routing
from trainer.model.transformer import Transformer
from trainer.spec.compute import Compute
from trainer.spec.moe import MoeConfig


class MoeBlock(eqx.Module):
    """Pre-norm: x + attention(norm(x)), then x + experts(norm(x))."""

    attention_norm: RmsNorm | GatedNorm
    attention: Attention
    mlp_norm: RmsNorm | GatedNorm
    experts: Experts

    @staticmethod
    def init(config: MoeConfig, *, key: PRNGKeyArray) -> "MoeBlock":
        k_attention, k_experts, k_first, k_second = jax.random.split(key, 4)
        embed = Axes.of(config).embed
        return MoeBlock(
            attention_norm=norm_of(embed, config, key=k_first),
            attention=moe_attention(config, key=k_attention),
            mlp_norm=norm_of(embed, config, key=k_second),
            experts=Experts.init(config, key=k_experts, out_std=depth_scaled_std(config)),
        )

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> tuple[NamedArray, Routing | None]:
        x = x + read(self.attention, self.attention_norm(x))
        out, routing = self.experts(self.mlp_norm(x), compute)
        return hax.auto_sharded(x + out), routing


class DenseBlock(eqx.Module):
    """A first layer: `MoeBlock` with an MLP in place of its experts."""

    attention_norm: RmsNorm | GatedNorm
    attention: Attention
    mlp_norm: RmsNorm | GatedNorm
    mlp: SharedExpert

    @staticmethod
    def init(config: MoeConfig, *, key: PRNGKeyArray) -> "DenseBlock":
        k_attention, k_mlp, k_first, k_second = jax.random.split(key, 4)
        embed = Axes.of(config).embed
        return DenseBlock(
            attention_norm=norm_of(embed, config, key=k_first),
            attention=moe_attention(config, key=k_attention),
            mlp_norm=norm_of(embed, config, key=k_second),
            mlp=SharedExpert.init(config, config.intermediate_dim, key=k_mlp, out_std=depth_scaled_std(config)),
        )

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> tuple[NamedArray, None]:
        x = x + read(self.attention, self.attention_norm(x))
        return hax.auto_sharded(x + self.mlp(self.mlp_norm(x), compute)), None


def moe_attention(config: MoeConfig, *, key: PRNGKeyArray) -> Attention:
    """Attention with the norms and extras that the config declares."""
    a, extras, std = Axes.of(config), config.extras, config.initializer_range
    k_attention, k_gate = jax.random.split(key)
    axes = {
        "none": (None, None),
        "head": ((a.head_dim,), (a.head_dim,)),
        "all": ((a.kv_heads, a.group, a.head_dim), (a.kv_heads, a.head_dim)),
    }[config.qk_norm]
    q_norm, k_norm = (None if each is None else RmsNorm.init(each, config.norm_eps) for each in axes)
    gate = hax.random.normal(k_gate, (a.embed, a.kv_heads, a.group)) * std if extras.head_gate else None
    return Attention.init(
        config,
        key=k_attention,
        out_std=depth_scaled_std(config),
        q_norm=q_norm,
        k_norm=k_norm,
        head_gate=gate,
        exclude_self=extras.exclude_self,
        rotated_dim=None if config.rotated_dim == config.head_size else config.rotated_dim,
    )


def init_moe(config: MoeConfig, *, key: PRNGKeyArray) -> Transformer:
    """A mixture of experts with random parameters and a bias of zero."""
    k_embedding, k_blocks, k_head, k_dense, k_first, k_last = jax.random.split(key, 6)
    a, std = Axes.of(config), config.initializer_range
    dense, mixed = a.layers.resize(config.dense_layers), a.layers.resize(config.num_expert_layers)
    first = Stacked.init(dense, DenseBlock)(config, key=jax.random.split(k_dense, dense.size)) if dense.size else None
    return Transformer(
        embedding=hax.random.normal(k_embedding, (a.vocab, a.embed)) * std,
        blocks=Stacked.init(mixed, MoeBlock)(config, key=jax.random.split(k_blocks, mixed.size)),
        norm=norm_of(a.embed, config, key=k_last),
        head=None if config.tie_embeddings else hax.random.normal(k_head, (a.vocab, a.embed)) * std,
        sliding_window=None,
        first=first,
        embedding_norm=norm_of(a.embed, config, key=k_first) if config.extras.gated_norm_rank else None,
        kinds=kinds_of(config),
    )


def kinds_of(config: MoeConfig) -> tuple[LayerKind, ...] | None:
    """The kind of every layer by the pattern of windows; None without one."""
    if config.extras.long_short is None:
        return None
    return tuple(LayerKind(config.layer_window(layer), not config.is_long(layer)) for layer in range(config.num_layers))
