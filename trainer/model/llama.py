"""The block of a Llama: norms before attention and before the MLP."""

import equinox as eqx
import haliax as hax
import jax
from haliax import NamedArray
from jaxtyping import PRNGKeyArray

from trainer.model.layers import Attention, Axes, Mlp, Read, RmsNorm, depth_scaled_std
from trainer.model.transformer import Transformer
from trainer.spec.compute import Compute
from trainer.spec.llama import LlamaConfig


class LlamaBlock(eqx.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    attention_norm: RmsNorm
    attention: Attention
    mlp_norm: RmsNorm
    mlp: Mlp

    @staticmethod
    def init(config: LlamaConfig, *, key: PRNGKeyArray) -> "LlamaBlock":
        a, out_std = Axes.of(config), depth_scaled_std(config)
        k_attention, k_mlp = jax.random.split(key)
        return LlamaBlock(
            attention_norm=RmsNorm.init(a.embed, config.norm_eps),
            attention=llama_attention(config, key=k_attention),
            mlp_norm=RmsNorm.init(a.embed, config.norm_eps),
            mlp=Mlp.init(config, key=k_mlp, out_std=out_std),
        )

    def __call__(self, x: NamedArray, read: Read, compute: Compute | None = None) -> tuple[NamedArray, None]:
        x = x + read(self.attention, self.attention_norm(x))
        # by the batch, so weights come to it (`trainer.spec.mesh`)
        return hax.auto_sharded(x + self.mlp(self.mlp_norm(x), compute)), None


def llama_attention(config: LlamaConfig, *, key: PRNGKeyArray) -> Attention:
    """Attention with norms of each head's queries and keys where the config has `qk_norm`."""
    head = Axes.of(config).head_dim
    q_norm, k_norm = (RmsNorm.init(head, config.norm_eps) if config.qk_norm else None for _ in range(2))
    out_std = depth_scaled_std(config)
    return Attention.init(config, key=key, out_std=out_std, q_norm=q_norm, k_norm=k_norm, rope_scaling=config.rope_scaling)


def init_llama(config: LlamaConfig, *, key: PRNGKeyArray) -> Transformer:
    """A Llama with random parameters."""
    return Transformer.init(config, LlamaBlock, key=key)
