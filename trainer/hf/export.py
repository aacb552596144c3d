"""The stage `trainer.hf_model`: export a checkpoint as a folder that `transformers`, vLLM and llama.cpp open.

Both config files hold the end-of-text ids of the tokenizer that the model was trained with: a model whose generation config
lacks one never stops. The tokenizer file is copied byte for byte.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.array_files import open_arrays
from trainer.hf.convert import architecture, hf_config, to_hf
from trainer.spec.config import RunSpec
from trainer.spec.models import ModelConfig, read_config
from trainer.spec.stage import MODEL_FILE

SHARD_BYTES = 5_000_000_000
TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
DTYPES: Mapping[str, Any] = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class HfExportConfig:
    """Which weights (raw, or their average if the run keeps one), in which type, and more tokens that end a text (the end of a
    turn in a chat template)."""

    weights: Literal["raw", "ema"] = "raw"
    dtype: Literal["float32", "bfloat16"] = "float32"
    end_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.weights not in ("raw", "ema") or self.dtype not in DTYPES:
            raise ValueError(
                f"hf export: weights {self.weights!r}, dtype {self.dtype!r}; allowed: raw, ema; {', '.join(DTYPES)}"
            )


def export_hf(out: Writer, config: HfExportConfig, checkpoint: Artifact, tokenizer: Artifact) -> None:
    """Write safetensors, `config.json`, `generation_config.json`, and the tokenizer with its config (its own if it has one).

    Raises: ValueError for weights that the run does not keep, or an end token that the tokenizer does not have.
    """
    model = _model_config(checkpoint)
    kept = open_arrays(checkpoint, "model" if config.weights == "raw" else "ema").whole()
    tensors = {key: tensor.astype(DTYPES[config.dtype]) for key, tensor in to_hf(kept, model).items()}
    _save_shards(tensors, out.folder)
    source = tokenizer.files(TOKENIZER_FILE)[0]
    opened = Tokenizer.from_file(str(source))
    facts = tokenizer.manifest.extra["tokenizer"]
    first = int(facts["eos"])
    opening = int(facts.get("bos", first))
    own = _own_config(tokenizer)
    turn_end = own.get("eos_token")
    ends = (*(() if turn_end is None else (_content(turn_end),)), *config.end_tokens)
    eos = tuple(dict.fromkeys((first, *(_token_id(opened, token, tokenizer.name) for token in ends))))
    _write_json(out.folder / "config.json", hf_config(model, eos, opening) | {"torch_dtype": config.dtype})
    _write_json(out.folder / "generation_config.json", {"bos_token_id": opening, "eos_token_id": list(eos)})
    (out.folder / TOKENIZER_FILE).write_bytes(source.read_bytes())
    for template in tokenizer.files(TEMPLATE_FILE):
        (out.folder / TEMPLATE_FILE).write_bytes(template.read_bytes())
    _write_json(out.folder / CONFIG_FILE, own or _tokenizer_config(opened, first, model.max_seq_len))
    out.extra["hf_model"] = {
        "architecture": architecture(model),
        "eos": list(eos),
        "dtype": config.dtype,
    }
    out.record(bytes_out=sum(tensor.nbytes for tensor in tensors.values()))


HF_MODEL = Stage("trainer.hf_model", "1", job="trainer.export", config=HfExportConfig)


def _model_config(checkpoint: Artifact) -> ModelConfig:
    """The model config of a trained or imported checkpoint. `trainer.checkpoint` has it too, but imports JAX; this
    stage must not."""
    for path in checkpoint.files(MODEL_FILE):
        return read_config(json.loads(path.read_text()), MODEL_FILE)
    return from_jsonable(RunSpec, checkpoint.spec.config["run"], f"{checkpoint.name} run").model


def _own_config(tokenizer: Artifact) -> dict[str, Any]:
    """The tokenizer config of a published model; empty for a tokenizer that was trained here."""
    return next((json.loads(path.read_text()) for path in tokenizer.files(CONFIG_FILE)), {})


def _content(token: str | Mapping[str, Any]) -> str:
    """The text of a special token in a tokenizer config, which is a string or a record."""
    return token if isinstance(token, str) else token["content"]


def _save_shards(tensors: Mapping[str, np.ndarray], folder: Path, limit: int = SHARD_BYTES) -> None:
    """Write one `model.safetensors`, or numbered files of at most `limit` bytes with an index, named as transformers does."""
    shards: list[dict[str, np.ndarray]] = [{}]
    for name, tensor in tensors.items():
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > limit:
            shards.append({})
        shards[-1][name] = tensor
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    names = names if len(shards) > 1 else ["model.safetensors"]
    for name, shard in zip(names, shards, strict=True):
        save_file(shard, folder / name, metadata={"format": "pt"})
    if len(shards) > 1:
        where = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(tensor.nbytes for tensor in tensors.values())
        _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def _token_id(tokenizer: Tokenizer, token: str, where: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(f"end token {token!r} is not in {where}; name one of its special tokens")
    return number


def _tokenizer_config(tokenizer: Tokenizer, eos: int, max_seq_len: int) -> dict[str, Any]:
    """Config of a tokenizer trained here. Our sequences begin with the document end, so it is both the first and the
    last token."""
    end = tokenizer.id_to_token(eos)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "model_max_length": max_seq_len,
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
