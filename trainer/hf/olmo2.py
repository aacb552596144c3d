"""Hugging Face's format of OLMo 2 (`modeling_olmo2.py` and `configuration_olmo2.py` of transformers 5.23)."""

from collections.abc import Mapping
from typing import Any

from trainer.hf.format import QK_NORMS, HfNames, check_plain, decoder_config, decoder_names, read_rope, shared_fields
from trainer.spec.olmo2 import Olmo2Config

OLMO2 = "Olmo2ForCausalLM"
NORMS = {"post_attention_layernorm": "attention_norm", "post_feedforward_layernorm": "mlp_norm"}


class Olmo2Format:
    """A `trainer.hf.format.HfFormat`."""

    model_types: Mapping[str, str] = {OLMO2: "olmo2"}

    def architecture(self, config: Olmo2Config) -> str:
        """The class of transformers that computes the same function."""
        return OLMO2

    def to_config(self, config: Olmo2Config, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
        """`config.json`."""
        return decoder_config(config, OLMO2, "olmo2", eos, bos)

    def from_config(self, stated: Mapping[str, Any]) -> Olmo2Config:
        """Our config of their `config.json`. Raises: ValueError for what our model does not compute, or a missing field."""
        check_plain(OLMO2, stated)
        theta, scaling = read_rope(OLMO2, stated)
        if scaling is not None:
            raise ValueError(f"{OLMO2} with rope scaling 'llama3' is not computed by our model; only 'default' is")
        size = stated["hidden_size"] // stated["num_attention_heads"]
        if stated.get("head_dim") not in (None, size):
            raise ValueError(f"{OLMO2} with head_dim = {stated['head_dim']} is not computed by our model; only {size} is")
        return Olmo2Config(**shared_fields(stated, theta))

    def names(self, config: Olmo2Config) -> HfNames:
        """Where the tensors lie. Their norms of queries and keys are flat; ours have the axes of heads."""
        d, h, kv = config.hidden_dim, config.head_size, config.num_kv_heads
        norm_shapes = {"attention.q_norm": (kv, config.num_heads // kv, h), "attention.k_norm": (kv, h)}
        return decoder_names(config, NORMS | QK_NORMS, {"attention_norm": (d,), "mlp_norm": (d,), **norm_shapes})


OLMO2_FORMAT = Olmo2Format()
