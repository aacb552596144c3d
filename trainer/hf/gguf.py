"""Read llama.cpp's GGUF files as Hugging Face tensors, config and tokenizer: Llama architectures with a byte-level BPE.

Quantized weights become the float32 numbers that llama.cpp computes with, so a model is compared with the weights of this file,
not with those before quantization. GGUF stores rows of queries and keys for interleaved rotary pairs; Hugging Face's form, and
ours, has the two halves (docs/references.md#gguf).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.quants import dequantize
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from lineage.strangers import naming
from trainer.hf.gguf_reader import BoundedReader

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3
"""Token type of special tokens, which text cannot contain."""
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The split of Llama 3's tokenizer, `llama-bpe` in llama.cpp; the lab's own tokenizers have it (`datakit.tokens.tokenizer`)."""


@dataclass(frozen=True)
class GgufModel:
    """The contents of a GGUF file in Hugging Face's form: tensors `[out, in]` float32, `config.json`,
    `tokenizer_config.json`."""

    tensors: Mapping[str, np.ndarray]
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    tokenizer_config: Mapping[str, Any]
    quantization: Mapping[str, int]
    """Number of tensors by storage type."""


def read_gguf(path: Path) -> GgufModel:
    """Read a whole file. Raises: ValueError for an architecture, a tensor or a tokenizer that is not supported."""
    with naming(path.name):
        return _read(path)


def _read(path: Path) -> GgufModel:
    reader = BoundedReader(path)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts.get("general.architecture") != "llama":
        raise ValueError(f"{path.name}: architecture is {facts.get('general.architecture')!r}; it must be llama")
    config = _config(path.name, facts)
    tensors, kinds = {}, dict[str, int]()
    for stored in reader.tensors:
        name = _tensor_name(path.name, stored.name)
        weight = np.array(dequantize(stored.data, stored.tensor_type), np.float32)
        kinds[stored.tensor_type.name] = kinds.get(stored.tensor_type.name, 0) + 1
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
        tensors[name] = weight if heads is None else _halves(weight, heads)
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    return GgufModel(tensors, config, _tokenizer(path.name, facts), _tokenizer_config(facts), dict(sorted(kinds.items())))


def _config(file: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    heads = int(facts["llama.attention.head_count"])
    size = int(facts.get("llama.attention.key_length", int(facts["llama.embedding_length"]) // heads))
    _check_plain(file, facts, size)
    tokens = facts["tokenizer.ggml.tokens"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": int(facts["llama.embedding_length"]),
        "intermediate_size": int(facts["llama.feed_forward_length"]),
        "num_hidden_layers": int(facts["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(facts.get("llama.attention.head_count_kv", heads)),
        "head_dim": size,
        "max_position_embeddings": int(facts["llama.context_length"]),
        "rms_norm_eps": round(float(facts["llama.attention.layer_norm_rms_epsilon"]), 12),
        "rope_theta": float(facts.get("llama.rope.freq_base", 10_000.0)),
        "hidden_act": "silu",
        "bos_token_id": int(facts["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(facts["tokenizer.ggml.eos_token_id"]),
    }


def _check_plain(file: str, facts: Mapping[str, Any], size: int) -> None:
    """Raises: ValueError naming what llama.cpp computes and our model does not. Its scaling without a type is linear."""
    kind = facts.get("llama.rope.scaling.type", "linear")
    factor = float(facts.get("llama.rope.scaling.factor", facts.get("llama.rope.scale_linear", 0.0)))
    if kind not in ("none", "linear") or (kind == "linear" and factor not in (0.0, 1.0)):
        raise ValueError(
            f"{file}: llama.rope.scaling.type is {kind!r} with a factor of {factor:g}, which changes every logit and is not "
            "computed by our model; it must have no rope scaling"
        )
    plain = {"llama.attention.value_length": size, "llama.rope.dimension_count": size, "llama.attention.sliding_window": 0}
    for name, wanted in plain.items():
        if int(facts.get(name, wanted)) != wanted:
            raise ValueError(f"{file}: {name} is {facts[name]}; our model computes {wanted}, with heads of {size}")
    if int(facts.get("llama.expert_count", 0)):
        raise ValueError(f"{file}: llama.expert_count is {facts['llama.expert_count']}; our model computes 0, without experts")


def _tensor_name(file: str, name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if len(parts) == 1 and parts[0] in OUTER:
        return f"{OUTER[parts[0]]}.weight"
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in LAYER:
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
    raise ValueError(f"{file}: tensor {name!r} has no place in a Llama; known: {', '.join((*OUTER, *LAYER))}")


def _halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of each head from interleaved pairs (0, 1), (2, 3) ... to first halves, then second halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _splits() -> dict[str, Any]:
    """Pre-tokenizers by llama.cpp's name."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated")
    llama3 = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return {
        "llama-bpe": llama3,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
        "gpt-2": byte_level,
    }


def _tokenizer(file: str, facts: Mapping[str, Any]) -> Tokenizer:
    model, split = facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre")
    splits = _splits()
    if model != "gpt2" or split not in splits:
        raise ValueError(
            f"{file}: tokenizer {model!r} with split {split!r} is not supported; only gpt2 with {', '.join(splits)}"
        )
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, right in (merge.split(" ") for merge in facts["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = splits[split]  # pyrefly: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyrefly: ignore
    kinds = facts["tokenizer.ggml.token_type"]
    controls = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    return tokenizer


def _tokenizer_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    tokens = facts["tokenizer.ggml.tokens"]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "clean_up_tokenization_spaces": False,
    }
    template = facts.get("tokenizer.chat_template")
    return config if template is None else config | {"chat_template": template}
