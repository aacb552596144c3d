"""Hugging Face's `config.json` of a Llama, Mistral or Qwen3, both ways. What our model does not compute is refused by name.

A config says more than its tensors show: a scaled rotary embedding or a window in some layers has the very tensors of a plain
model and other logits. Defaults are those of transformers 5.23 (`configuration_*.py`, `modeling_rope_utils.py`).
"""

from collections.abc import Mapping
from typing import Any

from trainer.config import Llama3RopeScaling, LlamaConfig

LLAMA, MISTRAL, QWEN3 = "LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"
MODEL_TYPES = {LLAMA: "llama", MISTRAL: "mistral", QWEN3: "qwen3"}
FULL, SLIDING = "full_attention", "sliding_attention"
OTHERWISE_BY_DEFAULT = {MISTRAL: ("num_key_value_heads", "sliding_window"), QWEN3: ("num_key_value_heads", "head_dim")}
"""Fields that transformers fills with numbers of its own (8 heads, a window of 4,096) where a config leaves them out."""
LLAMA3_FIELDS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def architecture(config: LlamaConfig) -> str:
    """The class of transformers that computes the same function."""
    if config.qk_norm:
        return QWEN3
    return LLAMA if config.sliding_window is None else MISTRAL


def hf_config(config: LlamaConfig, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
    """`config.json`. `eos`: every id that ends a text; the first is the document's end."""
    kind = architecture(config)
    found: dict[str, Any] = {
        "architectures": [kind],
        "model_type": MODEL_TYPES[kind],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.max_seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config.rope_scaling),
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "initializer_range": config.initializer_range,
        "bos_token_id": bos,
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0],
        "use_cache": True,
        "torch_dtype": "float32",
    }
    if kind == MISTRAL:
        found["sliding_window"] = config.sliding_window
    if kind == QWEN3:
        windowed = config.sliding_window is not None
        found |= {"use_sliding_window": windowed, "sliding_window": config.sliding_window, "max_window_layers": 0}
    return found


def from_hf_config(found: Mapping[str, Any]) -> LlamaConfig:
    """Our config of their `config.json`. Raises: ValueError for what our model does not compute, or what is not said."""
    kind = (found.get("architectures") or ["?"])[0]
    if kind not in MODEL_TYPES:
        raise ValueError(f"architecture {kind!r} is not read; {', '.join(MODEL_TYPES)} are")
    refused = {
        "attention_bias": found.get("attention_bias", False),
        "mlp_bias": found.get("mlp_bias", False),
        "hidden_act": found.get("hidden_act", "silu") != "silu",
    }
    if any(refused.values()):
        name = next(name for name, bad in refused.items() if bad)
        raise ValueError(f"{kind} with {name} = {found.get(name)!r} is not computed by our model")
    if missing := [name for name in OTHERWISE_BY_DEFAULT.get(kind, ()) if name not in found]:
        raise ValueError(f"{kind} without {missing[0]} in its config.json: say it, a default would be another model")
    heads, hidden = found["num_attention_heads"], found["hidden_size"]
    head_dim = found.get("head_dim")
    theta, scaling = _rope(kind, found)
    return LlamaConfig(
        vocab_size=found["vocab_size"],
        hidden_dim=hidden,
        intermediate_dim=found["intermediate_size"],
        num_layers=found["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=found.get("num_key_value_heads") or heads,
        max_seq_len=found["max_position_embeddings"],
        rope_theta=theta,
        norm_eps=found["rms_norm_eps"],
        tie_embeddings=found.get("tie_word_embeddings", False),
        initializer_range=found.get("initializer_range", 0.02),
        qk_norm=kind == QWEN3,
        rope_scaling=scaling,
        sliding_window=_window(kind, found),
        head_dim=None if head_dim is None or head_dim * heads == hidden else head_dim,
    )


def _window(kind: str, found: Mapping[str, Any]) -> int | None:
    """The window of every layer, None where none has one. Raises: ValueError where layers differ, or the config with itself."""
    windowed = kind == MISTRAL or (kind == QWEN3 and found.get("use_sliding_window", False))
    window = found.get("sliding_window") if windowed else None
    first = 0 if kind == MISTRAL else found.get("max_window_layers", 28)
    by_window = [FULL if window is None or layer < first else SLIDING for layer in range(found["num_hidden_layers"])]
    layers = set(found.get("layer_types") or by_window)
    if layers == {FULL} and (window is None or kind == QWEN3):
        return None
    if layers == {SLIDING} and window is not None:
        return window
    names = ("sliding_window", "use_sliding_window", "max_window_layers", "num_hidden_layers", "layer_types")
    said = ", ".join(f"{name} = {found[name]!r}" for name in names if name in found)
    raise ValueError(f"{kind} with {said} is not computed by our model, which has one window for all layers or for none")


def _rope(kind: str, found: Mapping[str, Any]) -> tuple[float, Llama3RopeScaling | None]:
    """(theta, scaling), of `rope_parameters` (transformers 5) or of `rope_theta` and `rope_scaling` (before), whose oldest form
    says `type` for `rope_type`. Raises: ValueError for a scaling that is not computed."""
    theta, scaling = float(found.get("rope_theta") or 10_000.0), None
    partial = {"config.json": found.get("partial_rotary_factor")}
    for where in ("rope_scaling", "rope_parameters"):
        told = found.get(where) or {}
        name = told.get("rope_type", told.get("type", "default"))
        partial[where] = told.get("partial_rotary_factor")
        if name not in ("default", "llama3") or any(isinstance(value, Mapping) for value in told.values()):
            raise ValueError(
                f"{kind} with {where} = {dict(told)} is not computed by our model: rope scaling {name!r} moves every logit; "
                "'default' and 'llama3', the same in every layer, are computed"
            )
        if name == "llama3":
            scaling = _our_scaling(where, told)
        theta = float(told.get("rope_theta") or theta)
    for where, share in partial.items():
        if share not in (None, 1, 1.0):
            raise ValueError(f"{kind} with partial_rotary_factor = {share!r} in {where} is not computed by our model; 1.0 is")
    return theta, scaling


def _rope_scaling(scaling: Llama3RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_seq_len,
    }


def _our_scaling(where: str, found: Mapping[str, Any]) -> Llama3RopeScaling:
    if missing := [name for name in LLAMA3_FIELDS if name not in found]:
        raise ValueError(f"{where} = {dict(found)} lacks {', '.join(missing)}, which rope scaling 'llama3' needs")
    factor, low, high, length = (found[name] for name in LLAMA3_FIELDS)
    return Llama3RopeScaling(factor, low, high, length)
