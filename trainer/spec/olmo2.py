"""The config of an OLMo 2 model. Imports no JAX."""

from dataclasses import dataclass
from typing import Literal

from trainer.spec.decoder import DecoderConfig


@dataclass(frozen=True)
class Olmo2Config(DecoderConfig):
    """Decoder with norms on the outputs of attention and MLP. Defaults are those of the released 7B model."""

    rope_theta: float = 500_000.0
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    kind: Literal["olmo2"] = "olmo2"

    @property
    def layer_norm_parameters(self) -> int:
        queries, keys = self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        return 2 * self.hidden_dim + queries + keys
