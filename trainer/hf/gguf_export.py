"""Write a folder in Hugging Face's form as one GGUF file, which llama.cpp, Ollama and LM Studio open.

Only what llama.cpp computes exactly as our model does: a plain Llama with a byte-level BPE tokenizer. Query and key rows go
from first halves and second halves to interleaved pairs, the reverse of `trainer.hf.gguf.read_gguf`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from trainer.hf.gguf import LAYER, LLAMA3_SPLIT, OUTER

ARCHITECTURE = "LlamaForCausalLM"
LLAMA3 = "llama-bpe"
CONTROL, NORMAL = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL


def write_gguf(folder: Path, path: Path, name: str) -> None:
    """Write the model and the tokenizer of `folder` to `path`; parts of `path` never appear.

    Raises: ValueError for an architecture, a rope scaling or a tokenizer that llama.cpp would compute differently.
    """
    config = json.loads((folder / "config.json").read_text())
    _check(config)
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    writer.add_name(name)
    _add_config(writer, config)
    _add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    kinds = {"q_proj": int(config["num_attention_heads"]), "k_proj": int(config["num_key_value_heads"])}
    for key, tensor in _tensors(folder).items():
        heads = next((heads for kind, heads in kinds.items() if kind in key), None)
        plain = np.asarray(tensor, np.float32)
        writer.add_tensor(_gguf_name(key), plain if heads is None else _pairs(plain, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)


def _check(config: Mapping[str, Any]) -> None:
    (architecture,) = config["architectures"]
    if architecture != ARCHITECTURE:
        raise ValueError(f"the export is a {architecture}; only a {ARCHITECTURE} goes into GGUF here: take --form hf")
    if config.get("rope_scaling"):
        raise ValueError(f"the export has rope_scaling {config['rope_scaling']}, which is not written to GGUF: take --form hf")


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return {key: tensor for path in sorted(folder.glob("*.safetensors")) for key, tensor in load_file(path).items()}


def _add_config(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    size = int(config.get("head_dim") or hidden // heads)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(hidden)
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config["num_key_value_heads"]))
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_vocab_size(int(config["vocab_size"]))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    vocabulary = dict(tokenizer["model"]["vocab"])
    added = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    by_id = {number: token for token, number in (vocabulary | added).items()}
    num_tokens = int(config["vocab_size"])
    tokens = [by_id.get(number, f"<unused{number}>") for number in range(num_tokens)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    special = {each["id"] for each in tokenizer["added_tokens"] if each["special"]}
    special |= {number for number in range(num_tokens) if number not in by_id}
    eos = config["eos_token_id"]
    writer.add_tokenizer_model("gpt2")
    split = _split_name(tokenizer["pre_tokenizer"])
    writer.add_tokenizer_pre(split)
    if split == LLAMA3:
        writer.add_add_bos_token(True)  # the sequences of our own tokenizers begin with it
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if number in special else NORMAL for number in range(num_tokens)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(int(config["bos_token_id"]))
    writer.add_eos_token_id(int(eos[0] if isinstance(eos, list) else eos))


def _split_name(split: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of a pre-tokenizer. Raises: ValueError for one that it would cut differently."""
    steps = split["pretokenizers"] if split["type"] == "Sequence" else [split]
    kinds = [(step["type"], step.get("individual_digits", False)) for step in steps]
    if _is_llama3(steps):
        return LLAMA3
    is_plain = not steps[-1].get("add_prefix_space", True) and steps[-1].get("use_regex", True)
    if kinds == [("ByteLevel", False)] and is_plain:
        return "gpt-2"
    if kinds == [("Digits", True), ("ByteLevel", False)] and is_plain:
        return "smollm"
    raise ValueError(f"the tokenizer splits text by {kinds}, which llama.cpp has no name for here: take --form hf")


def _is_llama3(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether text is cut as Llama 3's tokenizer cuts it: the regex, then bytes.

    llama.cpp takes a word that is a token whole, before any merge. In a trained vocabulary the merges give the same token.
    """
    if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
        return False
    words, bytes_of = steps
    cut = words["pattern"], words["behavior"], words["invert"]
    return cut == ({"Regex": LLAMA3_SPLIT}, "Isolated", False) and not (bytes_of["use_regex"] or bytes_of["add_prefix_space"])


def _gguf_name(key: str) -> str:
    """Return GGUF's name of a tensor. Raises: ValueError for one that a plain Llama does not have."""
    outer = {theirs: ours for ours, theirs in OUTER.items()}
    layer = {theirs: ours for ours, theirs in LAYER.items()}
    plain = key.removesuffix(".weight")
    if plain in outer:
        return f"{outer[plain]}.weight"
    parts = plain.split(".")
    if parts[:2] == ["model", "layers"] and ".".join(parts[3:]) in layer:
        return f"blk.{parts[2]}.{layer['.'.join(parts[3:])]}.weight"
    raise ValueError(f"tensor {key!r} has no place in GGUF's llama; known: {', '.join((*outer, *layer))}")


def _pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of each head from first halves, then second halves, to interleaved pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
