"""A GGUF file that we write reads back as the folder it was written from, tokenizer included."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file
from test_hf import BASE, a_model, arrays_of
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from datakit.tokens.tokenizer import SPLIT_PATTERN, new_tokenizer
from trainer.hf.convert import hf_config, to_hf
from trainer.hf.gguf import LLAMA3_SPLIT, read_gguf
from trainer.hf.gguf_export import write_gguf
from trainer.spec.llama import LlamaConfig

TEXTS = ["A lab is one graph.", "An artifact is never changed; 42 of them are listed.", "naïve café"]


def a_tokenizer() -> Tokenizer:
    """A tokenizer of GPT-2's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyrefly: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyrefly: ignore
    return trained(tokenizer)


def trained(tokenizer: Tokenizer) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def a_folder(folder: Path, model: LlamaConfig, tokenizer: Callable[[], Tokenizer] = a_tokenizer) -> Path:
    folder.mkdir()
    save_file(to_hf(arrays_of(a_model(model)), model), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf_config(model, (0,), 0)))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_it_reads_back_as_the_folder(tied: bool, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "hf", replace(BASE, vocab_size=300, tie_embeddings=tied))
    write_gguf(folder, tmp_path / "model.gguf", "a model")
    assert not list(tmp_path.glob("*.partial"))
    back, tensors = read_gguf(tmp_path / "model.gguf"), load_file(folder / "model.safetensors")
    assert set(back.tensors) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back.tensors[name], tensor, err_msg=name)
    config = json.loads((folder / "config.json").read_text())
    for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "rope_theta", "rms_norm_eps", "head_dim"):
        assert back.config[name] == pytest.approx(config[name]), name
    for text in TEXTS:
        assert back.tokenizer.encode(text).ids == a_tokenizer().encode(text).ids


def test_the_labs_own_tokenizer_reads_back_as_llama_3s(tmp_path: Path) -> None:
    own = partial(trained, new_tokenizer())
    folder = a_folder(tmp_path / "hf", replace(BASE, vocab_size=300), own)
    write_gguf(folder, tmp_path / "model.gguf", "a model")
    fields = GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.pre"].contents() == "llama-bpe" and fields["tokenizer.ggml.add_bos_token"].contents() is True
    back, tokenizer = read_gguf(tmp_path / "model.gguf").tokenizer, own()
    for text in [*TEXTS, "It's 12345 o'clock\r\n\n  then"]:
        assert back.encode(text).ids == tokenizer.encode(text).ids
    words = {tokenizer.decode([number]): number for number in range(257, tokenizer.get_vocab_size())}
    words = {word: number for word, number in words.items() if "\ufffd" not in word}  # a part of a letter is no word
    assert all(tokenizer.encode(word).ids == [number] for word, number in words.items()), "llama.cpp takes a word whole"
    assert len(words) > 20 and LLAMA3_SPLIT == SPLIT_PATTERN


def test_another_split_is_refused(tmp_path: Path) -> None:
    tokenizer = new_tokenizer()
    split = pre_tokenizers.Split(Regex(r"\w+"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])  # pyrefly: ignore
    folder = a_folder(tmp_path / "hf", replace(BASE, vocab_size=300), partial(trained, tokenizer))
    with pytest.raises(ValueError, match="has no name for"):
        write_gguf(folder, tmp_path / "model.gguf", "a model")


def test_what_llama_cpp_computes_otherwise_is_refused(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "hf", replace(BASE, vocab_size=300, qk_norm=True))
    with pytest.raises(ValueError, match="take --form hf"):
        write_gguf(folder, tmp_path / "model.gguf", "a model")
