"""Hugging Face's form of a model's weights, both ways: names and layouts of its Llama, Mistral and Qwen3.

Plain arrays in, plain arrays out; no JAX. Our weights are `[layers, in axes..., out axes...]` with every layer in one array,
theirs `[out, in]` a layer; rotary embeddings have the same half-split layout, and head `i` of theirs is (i // group, i % group)
of ours. `benchmarks/hf_parity.py` holds logits to those of transformers itself, which is no dependency of this project.
"""

from collections.abc import Mapping

import numpy as np

from trainer.config import LlamaConfig
from trainer.hf_config import architecture

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
    """Our arrays from theirs, float32; a tied model may say its one matrix twice, if both are the same.

    Raises: ValueError naming tensors that are missing, that we have no place for, or a head that is not the tied embedding.
    """
    tensors = _tied_once(tensors) if config.tie_embeddings else tensors
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


def _tied_once(tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Without the head that repeats the embedding."""
    head, embedding = tensors.get(HEAD[0]), tensors.get("model.embed_tokens.weight")
    if head is not None and embedding is not None and not np.array_equal(head, embedding):
        raise ValueError(
            "config.json says tie_word_embeddings, but lm_head.weight is not model.embed_tokens.weight; if the model has a "
            "head of its own, set tie_word_embeddings to false in its config.json, else remove lm_head.weight"
        )
    return {name: tensor for name, tensor in tensors.items() if name != HEAD[0]}


def _outer(config: LlamaConfig) -> dict[str, str]:
    return OUTER if config.tie_embeddings else OUTER | dict([HEAD])


def _layer_names(config: LlamaConfig) -> dict[str, str]:
    norms = NORMS | (QK_NORMS if config.qk_norm else {})
    return MATRICES | {theirs: f"{ours}.weight" for theirs, ours in norms.items()}


def _input_sizes(config: LlamaConfig) -> dict[str, int]:
    sizes = dict.fromkeys(MATRICES.values(), config.hidden_dim)
    return sizes | {"attention.w_o": config.num_heads * config.head_size, "mlp.w_down": config.intermediate_dim}


def _layer_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of ours for one layer."""
    d, m, h, kv = config.hidden_dim, config.intermediate_dim, config.head_size, config.num_kv_heads
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
