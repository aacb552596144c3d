"""A model straight from a folder in Hugging Face's form: safetensors (one file or several), `config.json`, `tokenizer.json`.

To look at or to serve; a model that a run starts from or whose scores are kept is an asset (`trainer.hf_import`), with lineage.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from safetensors.numpy import load_file

from trainer.config import LlamaConfig
from trainer.hf import from_hf
from trainer.hf_config import from_hf_config
from trainer.model import Llama

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"


@dataclass(frozen=True)
class HfFolder:
    """A model, the ids that end a text (the first of them the document's end), and the id that opens one where it is said."""

    model: Llama
    config: LlamaConfig
    end_tokens: tuple[int, ...]
    bos_token: int | None


def is_hf_folder(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file() and any(folder.glob("*.safetensors"))


def read_hf_folder(folder: Path) -> HfFolder:
    """Float32, whatever the files hold. Raises: ValueError for what our model does not compute, or a config without an end."""
    stated = json.loads((folder / CONFIG_FILE).read_text())
    config = from_hf_config(stated)
    tensors = {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}
    arrays = from_hf(tensors, config)
    shapes = eqx.filter_eval_shape(Llama.init, config, key=jax.random.PRNGKey(0))

    def fill(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        found = arrays[jax.tree_util.keystr(path)]
        if found.shape != leaf.shape:
            raise ValueError(f"{folder}: {jax.tree_util.keystr(path)} is {found.shape}, config.json means {leaf.shape}")
        return jnp.asarray(found)

    dynamic, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    model = eqx.combine(jax.tree_util.tree_map_with_path(fill, dynamic), static)
    return HfFolder(model, config, _ends(folder, stated), stated.get("bos_token_id"))


def _ends(folder: Path, stated: dict) -> tuple[int, ...]:
    """Of `generation_config.json` where there is one, as transformers does it, then of `config.json`."""
    generation = folder / "generation_config.json"
    found = json.loads(generation.read_text()).get("eos_token_id") if generation.is_file() else None
    found = stated.get("eos_token_id") if found is None else found
    if found is None:
        raise ValueError(f"{folder}: no eos_token_id in generation_config.json nor in {CONFIG_FILE}; a text would never end")
    return tuple(found) if isinstance(found, list) else (found,)
