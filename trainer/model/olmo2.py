"""The block of OLMo 2: norms on the outputs of attention and MLP, inside the residual branch.

Source: OLMo team 2024, "2 OLMo 2 Furious", arXiv 2501.00656, section 3.2 (reordered norm, QK-norm) and 3.3 (initialization:
every weight from a normal distribution of deviation 0.02, whatever the depth).
"""

import equinox as eqx
import haliax as hax
import jax
from haliax import NamedArray
from jaxtyping import PRNGKeyArray

from trainer.model.layers import Attention, Axes, Mlp, Read, RmsNorm
from trainer.model.transformer import Transformer
from trainer.spec.compute import Compute
from trainer.spec.olmo2 import Olmo2Config


class Olmo2Block(eqx.Module):
    """x + norm(attention(x)), then x + norm(mlp(x))."""

    attention: Attention
    attention_norm: RmsNorm
    mlp: Mlp
    mlp_norm: RmsNorm

    @staticmethod
    def init(config: Olmo2Config, *, key: PRNGKeyArray) -> "Olmo2Block":
        a, eps, std = Axes.of(config), config.norm_eps, config.initializer_range
        k_attention, k_mlp = jax.random.split(key)
        q_norm = RmsNorm.init((a.kv_heads, a.group, a.head_dim), eps)  # over all heads together, before they are split
        k_norm = RmsNorm.init((a.kv_heads, a.head_dim), eps)
        return Olmo2Block(
            attention=Attention.init(config, key=k_attention, out_std=std, q_norm=q_norm, k_norm=k_norm),
            attention_norm=RmsNorm.init(a.embed, eps),
            mlp=Mlp.init(config, key=k_mlp, out_std=std),
            mlp_norm=RmsNorm.init(a.embed, eps),
        )

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> tuple[NamedArray, None]:
        x = x + self.attention_norm(read(self.attention, x))
        return hax.auto_sharded(x + self.mlp_norm(self.mlp(x, compute))), None


def init_olmo2(config: Olmo2Config, *, key: PRNGKeyArray) -> Transformer:
    """An OLMo 2 model with random parameters."""
    return Transformer.init(config, Olmo2Block, key=key)
