"""Hugging Face's format of Llama, Mistral and Qwen3. What our model does not compute is refused by name.

A config says more than its tensors show: a scaled rotary embedding, or a window in some layers, has the same tensors as a
plain model and other logits. Defaults are those of transformers 5.23 (`configuration_*.py`, `modeling_rope_utils.py`).
"""

from collections.abc import Mapping
from typing import Any

from trainer.hf.format import QK_NORMS, HfNames, check_plain, decoder_config, decoder_names, read_rope, shared_fields
from trainer.spec.llama import LlamaConfig

LLAMA, MISTRAL, QWEN3 = "LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"
FULL, SLIDING = "full_attention", "sliding_attention"
NEEDED = {MISTRAL: ("num_key_value_heads", "sliding_window"), QWEN3: ("num_key_value_heads", "head_dim")}
"""Fields that transformers fills with numbers of its own (8 heads, a window of 4,096) where a config leaves them out."""
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}


class LlamaFormat:
    """A `trainer.hf.format.HfFormat`."""

    model_types: Mapping[str, str] = {LLAMA: "llama", MISTRAL: "mistral", QWEN3: "qwen3"}

    def architecture(self, config: LlamaConfig) -> str:
        """The class of transformers that computes the same function."""
        if config.qk_norm:
            return QWEN3
        return LLAMA if config.sliding_window is None else MISTRAL

    def to_config(self, config: LlamaConfig, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
        """`config.json`."""
        kind = self.architecture(config)
        stated = decoder_config(config, kind, self.model_types[kind], eos, bos, config.rope_scaling)
        if kind == MISTRAL:
            stated["sliding_window"] = config.sliding_window
        if kind == QWEN3:
            windowed = config.sliding_window is not None
            stated |= {"use_sliding_window": windowed, "sliding_window": config.sliding_window, "max_window_layers": 0}
        return stated

    def from_config(self, stated: Mapping[str, Any]) -> LlamaConfig:
        """Our config of their `config.json`. Raises: ValueError for what our model does not compute, or a missing field."""
        kind = stated["architectures"][0]
        check_plain(kind, stated, NEEDED.get(kind, ()))
        theta, scaling = read_rope(kind, stated)
        head_dim, plain = stated.get("head_dim"), stated["hidden_size"]
        return LlamaConfig(
            **shared_fields(stated, theta),
            qk_norm=kind == QWEN3,
            rope_scaling=scaling,
            sliding_window=_window(kind, stated),
            head_dim=None if head_dim is None or head_dim * stated["num_attention_heads"] == plain else head_dim,
        )

    def names(self, config: LlamaConfig) -> HfNames:
        """Where the tensors lie."""
        d, h = config.hidden_dim, config.head_size
        shapes = {"attention_norm": (d,), "mlp_norm": (d,), "attention.q_norm": (h,), "attention.k_norm": (h,)}
        return decoder_names(config, NORMS | (QK_NORMS if config.qk_norm else {}), shapes)


LLAMA_FORMAT = LlamaFormat()


def _window(kind: str, stated: Mapping[str, Any]) -> int | None:
    """The window of every layer, None where none has one.

    Raises: ValueError where layers differ, or where the config contradicts itself.
    """
    windowed = kind == MISTRAL or (kind == QWEN3 and stated.get("use_sliding_window", False))
    window = stated.get("sliding_window") if windowed else None
    first = 0 if kind == MISTRAL else stated.get("max_window_layers", 28)
    count = stated["num_hidden_layers"]  # of a file of strangers: nothing here takes time or memory by its size
    if not isinstance(count, int):
        raise ValueError(f"num_hidden_layers is {count!r}; a whole number is allowed")
    by_window = ({FULL} if window is None or first > 0 else set()) | (
        {SLIDING} if window is not None and count > first else set()
    )
    layers = set(stated.get("layer_types") or by_window)
    if layers == {FULL} and (window is None or kind == QWEN3):
        return None
    if layers == {SLIDING} and window is not None:
        return window
    names = ("sliding_window", "use_sliding_window", "max_window_layers", "num_hidden_layers", "layer_types")
    values = ", ".join(f"{name} = {stated[name]!r}" for name in names if name in stated)
    raise ValueError(f"{kind} with {values} is not computed by our model, which has one window for all layers or for none")
