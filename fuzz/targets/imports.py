"""Published models: a folder in Hugging Face's form, or a GGUF file. A byte in front says which file is hostile."""

import json
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fuzz.run import Target
from serving.server.loaded_model import open_hf_folder
from trainer.hf.convert import hf_config
from trainer.hf.gguf import read_gguf
from trainer.spec.llama import LlamaConfig

WIDTH = 8
MODEL = LlamaConfig(
    vocab_size=257, hidden_dim=WIDTH, intermediate_dim=WIDTH, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=16
)
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.gguf")
LAYER = {
    "self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (8, 8), "mlp.up_proj": (8, 8), "mlp.down_proj": (8, 8), "input_layernorm": (8,),
    "post_attention_layernorm": (8,),
}  # fmt: skip


def target() -> Target:
    archive = _whole()

    def attempt(data: bytes, folder: Path) -> None:
        name = FILES[(data[:1] or b"\0")[0] % len(FILES)]
        if name == "model.gguf":
            (folder / name).write_bytes(data[1:])
            read_gguf(folder / name)
            return
        for other, content in archive.items():
            if other != "model.gguf":
                (folder / other).write_bytes(content)
        (folder / name).write_bytes(data[1:])
        open_hf_folder(folder)

    return Target("imports", [bytes([FILES.index(name)]) + content for name, content in archive.items()], attempt)


def _whole() -> dict[str, bytes]:
    """Every file of a sound model."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*letters, "<|endoftext|>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tensors = {"model.embed_tokens.weight": np.zeros((257, WIDTH), np.float32), "model.norm.weight": np.ones(WIDTH, np.float32)}
    tensors |= {f"model.layers.0.{name}.weight": np.zeros(shape, np.float32) for name, shape in LAYER.items()}
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, Path(folder) / "model.safetensors")
        _write_gguf(Path(folder) / "model.gguf", list(vocabulary))
        return {
            "config.json": json.dumps(hf_config(MODEL, (256,), 256)).encode(),
            "model.safetensors": (Path(folder) / "model.safetensors").read_bytes(),
            "tokenizer.json": tokenizer.to_str().encode(),
            "tokenizer_config.json": json.dumps({"bos_token": "<|endoftext|>", "chat_template": "{{ messages }}"}).encode(),
            "generation_config.json": json.dumps({"eos_token_id": [256], "bos_token_id": 256}).encode(),
            "model.gguf": (Path(folder) / "model.gguf").read_bytes(),
        }


def _write_gguf(path: Path, tokens: list[str]) -> None:
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(16)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * (len(tokens) - 1) + [TokenType.CONTROL])
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(256)
    names = {
        "token_embd": (257, WIDTH), "output_norm": (WIDTH,), "blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8),
        "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8), "blk.0.ffn_gate": (8, 8), "blk.0.ffn_up": (8, 8),
        "blk.0.ffn_down": (8, 8), "blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,),
    }  # fmt: skip
    for name, shape in names.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
