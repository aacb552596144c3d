"""A model straight from a folder in Hugging Face's form: safetensors (one file or several), `config.json`,
`tokenizer.json`.

For serving and inspection. A model that a run starts from or whose scores are kept is an asset (`trainer.hf_import`),
with lineage.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from safetensors.numpy import load_file

from trainer.hf.convert import from_hf, from_hf_config
from trainer.model.build import model_shapes
from trainer.model.protocol import LanguageModel
from trainer.spec.models import ModelConfig

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"


@dataclass(frozen=True)
class HfFolder:
    """A model, the ids that end a text (the document end first), and the id that opens one if the config names it."""

    model: LanguageModel
    config: ModelConfig
    end_tokens: tuple[int, ...]
    bos_token: int | None


def is_hf_folder(folder: Path) -> bool:
    """Whether a folder has Hugging Face's config and at least one safetensors file."""
    return (folder / CONFIG_FILE).is_file() and any(folder.glob("*.safetensors"))


def read_hf_folder(folder: Path) -> HfFolder:
    """Read a folder that `transformers` wrote; `from_hf` makes the weights float32.

    Raises: ValueError for a model that ours does not compute, a config that names no end-of-text token, and an array whose
    shape is not that of the config; KeyError for an array that is not there.
    """
    stated = json.loads((folder / CONFIG_FILE).read_text())
    config = from_hf_config(stated)
    tensors = {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}
    arrays = from_hf(tensors, config)
    shapes = model_shapes(config)

    def fill(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        array = arrays[jax.tree_util.keystr(path)]
        if array.shape != leaf.shape:
            raise ValueError(f"{folder}: {jax.tree_util.keystr(path)} is {array.shape}, config.json means {leaf.shape}")
        return jnp.asarray(array)

    dynamic, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    model = eqx.combine(jax.tree_util.tree_map_with_path(fill, dynamic), static)
    return HfFolder(model, config, _ends(folder, stated), stated.get("bos_token_id"))


def _ends(folder: Path, stated: dict) -> tuple[int, ...]:
    """Return the end tokens that `generation_config.json` states, else those of `config.json` (`stated`), as transformers."""
    generation = folder / "generation_config.json"
    ends = json.loads(generation.read_text()).get("eos_token_id") if generation.is_file() else None
    ends = stated.get("eos_token_id") if ends is None else ends
    if ends is None:
        raise ValueError(f"{folder}: no eos_token_id in generation_config.json nor in {CONFIG_FILE}; a text would never end")
    return tuple(ends) if isinstance(ends, list) else (ends,)
