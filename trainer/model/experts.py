"""A mixture of experts as a block of a Llama: enough to plan and count one; no run can train it yet.

Every token goes to `per_token` of `num_experts` small SwiGLUs and to the block's own MLP, the shared expert (Marin's
Grug MoE, docs/references.md#marin-moe). No token is dropped: rows are sorted by expert and multiplied by
`jax.lax.ragged_dot`. Not included: gated norms (0.1 % of the parameters), quantile balancing, sliding windows. No run
spec has experts yet; `recipes/planned_runs.py` plans with them.
"""

from dataclasses import dataclass, field

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.nn.scan import Stacked
from jaxtyping import Array, Float, PRNGKeyArray

from trainer.model.layers import Attention, Axes, Mlp, Read, RmsNorm, depth_scaled_std
from trainer.model.llama import init_llama, llama_attention
from trainer.model.transformer import Transformer
from trainer.spec.checks import require
from trainer.spec.compute import Compute
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.roles import MATRIX


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

    def parameters(self, config: ModelConfig) -> tuple[int, int]:
        """(all parameters of a model with these experts, those active for one token)."""
        one = 3 * config.hidden_dim * self.intermediate_dim
        router = config.hidden_dim * self.num_experts
        dense = config.num_parameters + config.num_layers * router
        return dense + config.num_layers * self.num_experts * one, dense + config.num_layers * self.per_token * one


class Experts(eqx.Module):
    """A router and its experts."""

    router: NamedArray = field(metadata=MATRIX)
    w_gate: NamedArray = field(metadata=MATRIX)
    w_up: NamedArray = field(metadata=MATRIX)
    w_down: NamedArray = field(metadata=MATRIX)
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
        """The sum of each position's experts, weighted by the sigmoids of their logits."""
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
    """`LlamaBlock` with experts beside its MLP."""

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
            attention_norm=RmsNorm.init(embed, config.norm_eps),
            attention=llama_attention(config, key=k_attention),
            mlp_norm=RmsNorm.init(embed, config.norm_eps),
            mlp=Mlp.init(config, key=k_mlp, out_std=depth_scaled_std(config)),
            experts=Experts.init(config, experts, key=k_experts),
        )

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> NamedArray:
        x = x + read(self.attention, self.attention_norm(x))
        normed = self.mlp_norm(x)
        return hax.auto_sharded(x + self.mlp(normed) + self.experts(normed))


def with_experts(config: ModelConfig, experts: ExpertsConfig, *, key: PRNGKeyArray) -> Transformer:
    """A Llama whose blocks have experts. Raises: ValueError for a model of another family."""
    if not isinstance(config, LlamaConfig):
        raise ValueError(f"experts can be planned for a LlamaConfig only; the run's model is a {type(config).__name__}")
    k_model, k_blocks = jax.random.split(key)
    keys = jax.random.split(k_blocks, config.num_layers)
    blocks = Stacked.init(Axes.of(config).layers, ExpertBlock)(config, experts, key=keys)
    return eqx.tree_at(lambda model: model.blocks, init_llama(config, key=k_model), blocks)
