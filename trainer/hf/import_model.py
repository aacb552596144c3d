"""The stage `trainer.hf_import`: import a published model as a checkpoint, to serve, to evaluate, or to start a run
from.

It reads a raw artifact: a Hugging Face folder (safetensors, `config.json`, `tokenizer.json`) or one GGUF file. The
result has no mixture: what the model was trained on is not known here, and its manifest says so.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.stage import Stage
from lineage.strangers import naming
from lineage.writing.writer import Writer
from trainer.hf.convert import architecture, from_hf, from_hf_config
from trainer.hf.gguf import read_gguf
from trainer.spec.models import ModelConfig
from trainer.spec.stage import FORMAT, MODEL_FILE

TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


@dataclass(frozen=True)
class HfImportConfig:
    """The token that ends a document in the model's training data, the context length to use (None: the model's own),
    and the token that opens a document if it is another one (Llama 2's `<s>`)."""

    document_end: str
    max_seq_len: int | None = None
    document_start: str = field(default="", metadata={"added_later": True})

    def __post_init__(self) -> None:
        if self.max_seq_len is not None and self.max_seq_len < 2:
            raise ValueError(f"hf import: max_seq_len is {self.max_seq_len}; it must be at least 2, or None")


@dataclass(frozen=True)
class _Published:
    """A model in Hugging Face's form."""

    form: str
    tensors: Mapping[str, np.ndarray]
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    tokenizer_config: Mapping[str, Any]
    template: str | None


def import_hf(out: Writer, config: HfImportConfig, raw: Artifact) -> None:
    """Write `model.safetensors`, `model.json`, and the tokenizer with its config and chat template.

    Raises: ValueError for a model that ours does not compute, missing files, or a document end that is not a token.
    """
    with naming(raw.name):
        published = _read(raw)
    stated = from_hf_config(published.config)
    model = stated if config.max_seq_len is None else _shortened(stated, config.max_seq_len, raw.name)
    arrays = from_hf(published.tensors, model)
    named = {"eos": ("document_end", config.document_end), "bos": ("document_start", config.document_start)}
    specials = {
        name: _token_id(published.tokenizer, *token, raw.name) for name, token in named.items() if token[1] or name == "eos"
    }
    if published.tokenizer.get_vocab_size() > model.vocab_size:
        raise ValueError(
            f"{raw.name}: {published.tokenizer.get_vocab_size()} tokens do not fit the model's {model.vocab_size} rows"
        )
    save_file(arrays, out.folder / "model.safetensors")
    _write_json(out.folder / MODEL_FILE, to_jsonable(model))
    (out.folder / TOKENIZER_FILE).write_text(published.tokenizer.to_str())
    _write_json(out.folder / CONFIG_FILE, published.tokenizer_config)
    if published.template is not None:
        (out.folder / TEMPLATE_FILE).write_text(published.template)
    out.extra["checkpoint"] = {
        "format": FORMAT,
        "step": 0,
        "tokens_seen": 0,
        "vocab_size": model.vocab_size,
        "parameters": model.num_parameters,
        "imported": {"from": raw.name, "form": published.form, "architecture": architecture(model)},
    }
    out.facts["tokenizer"] = {"vocab_size": published.tokenizer.get_vocab_size(), **specials}
    out.record(bytes_out=sum(array.nbytes for array in arrays.values()))


HF_IMPORT = Stage("trainer.hf_import", "3", import_hf)


def _read(raw: Artifact) -> _Published:
    """The model of a raw artifact. Raises: ValueError if it holds neither form, or several models."""
    paths = {path.name: path for path in raw.files()}
    ggufs = [path for name, path in sorted(paths.items()) if name.endswith(".gguf")]
    if len(ggufs) == 1:
        model = read_gguf(ggufs[0])
        form = "gguf " + ", ".join(f"{count} {kind}" for kind, count in model.quantization.items())
        settings = dict(model.tokenizer_config)
        return _Published(form, model.tensors, model.config, model.tokenizer, settings, settings.pop("chat_template", None))
    weights = [path for name, path in sorted(paths.items()) if name.endswith(".safetensors")]
    missing = [name for name in ("config.json", TOKENIZER_FILE) if name not in paths]
    if ggufs or not weights or missing:
        raise ValueError(
            f"{raw.name} holds {', '.join(sorted(paths))}; a model is one .gguf file, or .safetensors with config.json and "
            f"{TOKENIZER_FILE}"
        )
    tensors = {name: tensor for path in weights for name, tensor in load_file(path).items()}
    settings = _json(paths.get(CONFIG_FILE))
    template = paths[TEMPLATE_FILE].read_text() if TEMPLATE_FILE in paths else settings.get("chat_template")
    tokenizer = Tokenizer.from_file(str(paths[TOKENIZER_FILE]))
    return _Published("safetensors", tensors, _json(paths["config.json"]), tokenizer, settings, template)


def _token_id(tokenizer: Tokenizer, name: str, token: str, where: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(f"{where}: {name} {token!r} is not a token; give one of its special tokens")
    return number


def _shortened(stated: ModelConfig, max_seq_len: int, where: str) -> ModelConfig:
    if max_seq_len > stated.max_seq_len:
        raise ValueError(f"{where}: max_seq_len {max_seq_len} is longer than the model's own {stated.max_seq_len}")
    return replace(stated, max_seq_len=max_seq_len)


def _json(path: Path | None) -> dict[str, Any]:
    return {} if path is None else json.loads(path.read_text())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
