"""A norm with a low-rank gate on its own output."""

from dataclasses import field

import equinox as eqx
import haliax as hax
import jax
from haliax import Axis, NamedArray
from jaxtyping import PRNGKeyArray

from trainer.model.layers import RmsNorm, dot
from trainer.spec.moe import MoeConfig
from trainer.spec.roles import GATE


class GatedNorm(eqx.Module):
    """n * sigmoid(up(silu(down n))) with n the root-mean-square norm of x. Source: docs/references.md#marin-moe."""

    norm: RmsNorm
    w_down: NamedArray = field(metadata=GATE)
    w_up: NamedArray = field(metadata=GATE)

    @staticmethod
    def init(embed: Axis, rank: int, eps: float, std: float, *, key: PRNGKeyArray) -> "GatedNorm":
        gate, (k_down, k_up) = Axis("gate_rank", rank), jax.random.split(key)
        w_down, w_up = hax.random.normal(k_down, (embed, gate)) * std, hax.random.normal(k_up, (gate, embed)) * std
        return GatedNorm(RmsNorm.init(embed, eps), w_down, w_up)

    def __call__(self, x: NamedArray) -> NamedArray:
        normed = self.norm(x)
        gate = dot(hax.nn.silu(dot(normed, self.w_down, "embed")), self.w_up, "gate_rank")
        return normed * hax.nn.sigmoid(gate)


def norm_of(embed: Axis, config: MoeConfig, *, key: PRNGKeyArray) -> RmsNorm | GatedNorm:
    """The norm that the config declares for the residual stream."""
    rank = config.extras.gated_norm_rank
    if not rank:
        return RmsNorm.init(embed, config.norm_eps)
    return GatedNorm.init(embed, rank, config.norm_eps, config.initializer_range, key=key)
