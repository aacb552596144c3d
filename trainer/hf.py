"""Hugging Face's form of a model, both ways: names, layouts and configs of its Llama, Mistral and Qwen3.

Plain arrays in, plain arrays out; no JAX. Our weights are `[layers, in axes..., out axes...]` with every layer in one array,
theirs `[out, in]` a layer; rotary embeddings have the same half-split layout, and head `i` of theirs is (i // group, i % group)
of ours. `benchmarks/hf_parity.py` holds logits to those of transformers itself, which is no dependency of this project.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.config import Llama3RopeScaling, LlamaConfig

MATRICES = {
    "self_attn.q_proj": "attention.w_q",
    "self_attn.k_proj": "attention.w_k",
    "self_attn.v_proj": "attention.w_v",
    "self_attn.o_proj": "attention.w_o",
    "mlp.gate_proj": "mlp.w_gate",
    "mlp.up_proj": "mlp.w_up",
    "mlp.down_proj": "mlp.w_down",
}
LEAF = "[<flat index 0>]"
"""How JAX's key path names the one array of a haliax `NamedArray`."""
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
QK_NORMS = {"self_attn.q_norm": "attention.q_norm", "self_attn.k_norm": "attention.k_norm"}
OUTER = {"model.embed_tokens.weight": f".embedding{LEAF}", "model.norm.weight": f".norm.weight{LEAF}"}
HEAD = ("lm_head.weight", f".head{LEAF}")


def architecture(config: LlamaConfig) -> str:
    """The class of transformers that computes the same function."""
    if config.qk_norm:
        return "Qwen3ForCausalLM"
    return "LlamaForCausalLM" if config.sliding_window is None else "MistralForCausalLM"


def to_hf(arrays: Mapping[str, np.ndarray], config: LlamaConfig) -> dict[str, np.ndarray]:
    """Their tensors from ours (`model.safetensors` of a checkpoint). Raises KeyError naming an array that is not there."""
    tensors = {theirs: arrays[ours] for theirs, ours in _outer(config).items()}
    inputs = _input_sizes(config)
    for theirs, ours in _layer_names(config).items():
        stacked = arrays[f".blocks.stacked.{ours}{LEAF}"]
        for layer in range(config.num_layers):
            weight = stacked[layer]
            flat = weight if weight.ndim == 1 else np.ascontiguousarray(weight.reshape(inputs[ours], -1).T)
            tensors[f"model.layers.{layer}.{theirs}.weight"] = flat
    return tensors


def from_hf(tensors: Mapping[str, np.ndarray], config: LlamaConfig) -> dict[str, np.ndarray]:
    """Our arrays from theirs, float32. Raises ValueError naming tensors that are missing or that we have no place for."""
    shapes = _layer_shapes(config)
    names = {
        f"model.layers.{layer}.{theirs}.weight" for theirs in _layer_names(config) for layer in range(config.num_layers)
    } | set(_outer(config))
    missing, odd = sorted(names - set(tensors)), sorted(set(tensors) - names)
    if missing or odd:
        raise ValueError(
            f"{architecture(config)} of {config.num_layers} layers: missing {missing[:3]}, not known {odd[:3]}; "
            "check the config's layers, qk_norm and tie_embeddings"
        )
    arrays = {ours: np.asarray(tensors[theirs], np.float32) for theirs, ours in _outer(config).items()}
    for theirs, ours in _layer_names(config).items():
        layers = [tensors[f"model.layers.{layer}.{theirs}.weight"] for layer in range(config.num_layers)]
        stacked = np.stack([np.asarray(weight, np.float32).T.reshape(shapes[ours]) for weight in layers])
        # numpy keeps the order of transposes, and safetensors (0.8) writes such an array's memory as it lies.
        arrays[f".blocks.stacked.{ours}{LEAF}"] = np.ascontiguousarray(stacked)
    return arrays


def hf_config(config: LlamaConfig, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
    """`config.json`. `eos`: every id that ends a text; the first is the document's end."""
    kind = architecture(config)
    found: dict[str, Any] = {
        "architectures": [kind],
        "model_type": {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen3ForCausalLM": "qwen3"}[kind],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
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
    if kind == "MistralForCausalLM":
        found["sliding_window"] = config.sliding_window
    if kind == "Qwen3ForCausalLM":
        windowed = config.sliding_window is not None
        found |= {"use_sliding_window": windowed, "sliding_window": config.sliding_window, "max_window_layers": 0}
    return found


def from_hf_config(found: Mapping[str, Any]) -> LlamaConfig:
    """Our config of their `config.json`. Raises ValueError for what our model does not compute."""
    kind = (found.get("architectures") or ["?"])[0]
    if kind not in ("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"):
        raise ValueError(f"architecture {kind!r} is not read; LlamaForCausalLM, MistralForCausalLM and Qwen3ForCausalLM are")
    heads, hidden = found["num_attention_heads"], found["hidden_size"]
    refused = {
        "attention_bias": found.get("attention_bias", False),
        "mlp_bias": found.get("mlp_bias", False),
        "head_dim": (found.get("head_dim") or hidden // heads) != hidden // heads,
        "hidden_act": found.get("hidden_act", "silu") != "silu",
    }
    if any(refused.values()):
        name = next(name for name, bad in refused.items() if bad)
        raise ValueError(f"{kind} with {name} = {found.get(name)!r} is not computed by our model")
    rope = found.get("rope_parameters") or {}
    windowed = kind == "MistralForCausalLM" or found.get("use_sliding_window", False)
    return LlamaConfig(
        vocab_size=found["vocab_size"],
        hidden_dim=hidden,
        intermediate_dim=found["intermediate_size"],
        num_layers=found["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=found.get("num_key_value_heads") or heads,
        max_seq_len=found["max_position_embeddings"],
        rope_theta=float(rope.get("rope_theta") or found.get("rope_theta") or 10_000.0),
        norm_eps=found["rms_norm_eps"],
        tie_embeddings=found.get("tie_word_embeddings", False),
        initializer_range=found.get("initializer_range", 0.02),
        qk_norm=kind == "Qwen3ForCausalLM",
        rope_scaling=_our_scaling(found.get("rope_scaling") or (rope if rope.get("rope_type") == "llama3" else None)),
        sliding_window=found.get("sliding_window") if windowed else None,
    )


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


def _our_scaling(found: Mapping[str, Any] | None) -> Llama3RopeScaling | None:
    if found is None or found.get("rope_type", "default") == "default":
        return None
    if found["rope_type"] != "llama3":
        raise ValueError(f"rope scaling {found['rope_type']!r} is not computed by our model; llama3 is")
    return Llama3RopeScaling(
        factor=found["factor"],
        low_freq_factor=found["low_freq_factor"],
        high_freq_factor=found["high_freq_factor"],
        original_max_seq_len=found["original_max_position_embeddings"],
    )


def _outer(config: LlamaConfig) -> dict[str, str]:
    return OUTER if config.tie_embeddings else OUTER | dict([HEAD])


def _layer_names(config: LlamaConfig) -> dict[str, str]:
    norms = NORMS | (QK_NORMS if config.qk_norm else {})
    return MATRICES | {theirs: f"{ours}.weight" for theirs, ours in norms.items()}


def _input_sizes(config: LlamaConfig) -> dict[str, int]:
    sizes = dict.fromkeys(MATRICES.values(), config.hidden_dim)
    return sizes | {"mlp.w_down": config.intermediate_dim}


def _layer_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of ours for one layer."""
    d, m, h, kv = config.hidden_dim, config.intermediate_dim, config.head_dim, config.num_kv_heads
    group = config.num_heads // kv
    return {
        "attention.w_q": (d, kv, group, h),
        "attention.w_k": (d, kv, h),
        "attention.w_v": (d, kv, h),
        "attention.w_o": (kv, group, h, d),
        "mlp.w_gate": (d, m),
        "mlp.w_up": (d, m),
        "mlp.w_down": (m, d),
        "attention_norm.weight": (d,),
        "mlp_norm.weight": (d,),
        "attention.q_norm.weight": (h,),
        "attention.k_norm.weight": (h,),
    }
