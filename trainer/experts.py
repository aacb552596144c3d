"""A mixture of experts as a block of the trainer's Llama: enough to lay one out and count it, not a recipe to train one by.

Every token goes to `per_token` of `num_experts` small SwiGLUs and to the block's own MLP, the shared expert (Grug MoE, marin
#4447; research/training_levanter_haliax_grug.md, section 4). No token is dropped: rows are sorted by expert and multiplied by
`jax.lax.ragged_dot`. Left out are what costs no bytes to speak of and what keeps a router balanced: gated norms (0.1 % of the
parameters), quantile balancing, sliding windows. No run spec has experts yet; `recipes/paper_runs.py` plans with them.
"""

from dataclasses import dataclass

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.nn.scan import Stacked
from jaxtyping import Array, Float, PRNGKeyArray

from trainer.checks import require
from trainer.compute import Compute
from trainer.config import LlamaConfig
from trainer.model import Attention, Axes, Llama, Mlp, RmsNorm


@dataclass(frozen=True)
class ExpertsConfig:
    """Experts beside the MLP of every layer, whose `intermediate_dim` is the shared expert's."""

    num_experts: int
    per_token: int
    intermediate_dim: int

    def __post_init__(self) -> None:
        for name in ("num_experts", "intermediate_dim"):
            require(getattr(self, name) > 0, f"experts.{name}", getattr(self, name), "positive")
        require(0 < self.per_token <= self.num_experts, "experts.per_token", self.per_token, f"in 1..{self.num_experts}")

    def parameters(self, config: LlamaConfig) -> tuple[int, int]:
        """(all parameters of a model with these experts, those that one token meets)."""
        one = 3 * config.hidden_dim * self.intermediate_dim
        router = config.hidden_dim * self.num_experts
        dense = config.num_parameters + config.num_layers * router
        return dense + config.num_layers * self.num_experts * one, dense + config.num_layers * self.per_token * one


class Experts(eqx.Module):
    """A router and its experts."""

    router: NamedArray
    w_gate: NamedArray
    w_up: NamedArray
    w_down: NamedArray
    per_token: int = eqx.field(static=True)

    @staticmethod
    def init(config: LlamaConfig, experts: ExpertsConfig, *, key: PRNGKeyArray) -> "Experts":
        embed, std = Axes.of(config).embed, config.initializer_range
        expert, mlp = Axis("expert", experts.num_experts), Axis("mlp", experts.intermediate_dim)
        k_r, k_g, k_u, k_d = jax.random.split(key, 4)
        return Experts(
            router=hax.random.normal(k_r, (embed, expert)) * std,
            w_gate=hax.random.normal(k_g, (expert, embed, mlp)) * std,
            w_up=hax.random.normal(k_u, (expert, embed, mlp)) * std,
            w_down=hax.random.normal(k_d, (expert, mlp, embed)) * (std / (2 * config.num_layers) ** 0.5),
            per_token=experts.per_token,
        )

    def __call__(self, x: NamedArray) -> NamedArray:
        """Each position's experts, added up with the sigmoids of their logits as weights."""
        order = ("batch", "position", "embed")
        rows = x.rearrange(order).array
        return hax.named(self.of_rows(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape), x.rearrange(order).axes)

    def of_rows(self, x: Float[Array, "N D"]) -> Float[Array, "N D"]:
        logits = jnp.matmul(x.astype(jnp.float32), self.router.array, preferred_element_type=jnp.float32)
        chosen, ids = jax.lax.top_k(logits, self.per_token)
        order = jnp.argsort(ids.reshape(-1))
        sizes = jnp.bincount(ids.reshape(-1), length=logits.shape[1])
        rows = x[order // self.per_token]
        w_gate, w_up, w_down = (each.array.astype(x.dtype) for each in (self.w_gate, self.w_up, self.w_down))
        wide = jax.nn.silu(jax.lax.ragged_dot(rows, w_gate, sizes)) * jax.lax.ragged_dot(rows, w_up, sizes)
        out = jax.lax.ragged_dot(wide, w_down, sizes) * jax.nn.sigmoid(chosen).reshape(-1)[order, None].astype(x.dtype)
        return jnp.zeros_like(x).at[order // self.per_token].add(out)


class ExpertBlock(eqx.Module):
    """`trainer.model.Block` with experts beside its MLP."""

    attention_norm: RmsNorm
    attention: Attention
    mlp_norm: RmsNorm
    mlp: Mlp
    experts: Experts

    @staticmethod
    def init(config: LlamaConfig, experts: ExpertsConfig, *, key: PRNGKeyArray) -> "ExpertBlock":
        embed = Axes.of(config).embed
        k_attention, k_mlp, k_experts = jax.random.split(key, 3)
        return ExpertBlock(
            attention_norm=RmsNorm(hax.ones(embed), config.norm_eps),
            attention=Attention.init(config, key=k_attention),
            mlp_norm=RmsNorm(hax.ones(embed), config.norm_eps),
            mlp=Mlp.init(config, key=k_mlp),
            experts=Experts.init(config, experts, key=k_experts),
        )

    def __call__(self, x: NamedArray, segment_ids: Array | None, window: int | None, compute: Compute) -> NamedArray:
        x = x + self.attention(self.attention_norm(x), segment_ids, window, compute)
        normed = self.mlp_norm(x)
        return hax.auto_sharded(x + self.mlp(normed) + self.experts(normed))


def with_experts(config: LlamaConfig, experts: ExpertsConfig, *, key: PRNGKeyArray) -> Llama:
    """A Llama whose blocks have experts."""
    k_model, k_blocks = jax.random.split(key)
    keys = jax.random.split(k_blocks, config.num_layers)
    blocks = Stacked.init(Axes.of(config).layers, ExpertBlock)(config, experts, key=keys)
    return eqx.tree_at(lambda model: model.blocks, Llama.init(config, key=k_model), blocks)
