"""Hugging Face's form of a model, both ways: `config.json` and tensors, for every family.

Plain arrays in, plain arrays out; no JAX. transformers is no dependency of this project: `benchmarks/hf_parity.py` compares
logits with it in an environment of its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.hf.format import EMBEDDING, HEAD, LEAF, HfFormat, HfNames, HfStack
from trainer.hf.llama import LLAMA_FORMAT
from trainer.hf.moe import MOE_FORMAT
from trainer.hf.olmo2 import OLMO2_FORMAT
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.moe import MoeConfig
from trainer.spec.olmo2 import Olmo2Config

HF_FORMATS: Mapping[type, HfFormat] = {LlamaConfig: LLAMA_FORMAT, Olmo2Config: OLMO2_FORMAT, MoeConfig: MOE_FORMAT}
"""The format of each family, by its config."""


def architecture(config: ModelConfig) -> str:
    """The class of transformers that computes the same function."""
    return HF_FORMATS[type(config)].architecture(config)


def hf_config(config: ModelConfig, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
    """`config.json`. `eos`: every id that ends a text; the first is the document's end."""
    return HF_FORMATS[type(config)].to_config(config, eos, bos)


def from_hf_config(stated: Mapping[str, Any]) -> ModelConfig:
    """Our config of their `config.json`. Raises: ValueError for what our models do not compute, or a missing field."""
    kind = (stated.get("architectures") or ["?"])[0]
    formats = {name: each for each in HF_FORMATS.values() for name in each.model_types}
    if kind not in formats:
        raise ValueError(f"architecture {kind!r} cannot be read; these can: {', '.join(formats)}")
    return formats[kind].from_config(stated)


def to_hf(arrays: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
    """Their tensors from ours (`model.safetensors` of a checkpoint).

    Raises: KeyError naming an array that is missing; ValueError for a model that their form does not hold.
    """
    names = _names(config)
    tensors = {theirs: arrays[ours] for theirs, ours in names.outer.items()}
    for stack in names.stacks:
        for theirs, ours, layer, expert in stack.places():
            weight = arrays[_path(stack, ours)][layer]
            weight = weight if expert is None else weight[expert]
            inputs = stack.inputs.get(ours)
            if inputs is None:
                tensors[theirs] = weight.reshape(-1)
                continue
            outputs_first = weight.reshape(inputs, -1).T
            if more := stack.padded.get(ours, 0):
                outputs_first = np.pad(outputs_first, ((0, 0), (0, more)) if ours.endswith("w_down") else ((0, more), (0, 0)))
            tensors[theirs] = np.ascontiguousarray(outputs_first)
        for ours in stack.zeros:
            if np.any(arrays[_path(stack, ours)]):
                raise ValueError(f"{ours} is not zero, and {architecture(config)} has none")
    return tensors


def from_hf(tensors: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
    """Our arrays from theirs, float32; a tied model may hold its one matrix twice, if both are the same.

    Raises: ValueError naming tensors that are missing, that have no place in our model, or a head that is not the tied
    embedding.
    """
    tensors = _tied_once(tensors) if config.tie_embeddings else tensors
    names = _names(config)
    wanted = {theirs for stack in names.stacks for theirs, *_ in stack.places()} | set(names.outer)
    missing, odd = sorted(wanted - set(tensors)), sorted(set(tensors) - wanted)
    if missing or odd:
        raise ValueError(
            f"{architecture(config)} of {config.num_layers} layers: missing {missing[:3]}, not known {odd[:3]}; "
            "check the config's layers, norms and tie_embeddings"
        )
    arrays = {ours: np.asarray(tensors[theirs], np.float32) for theirs, ours in names.outer.items()}
    for stack in names.stacks:
        for ours, shape in {**stack.shapes, **stack.zeros}.items():
            if ours in {*stack.layer.values(), *stack.zeros}:
                # filled in place: numpy keeps the memory order of a transpose, and safetensors (0.8) writes memory as it lies
                arrays[_path(stack, ours)] = np.zeros((stack.count, *shape), np.float32)
        for theirs, ours, layer, expert in stack.places():
            into = arrays[_path(stack, ours)][layer]
            into = into if expert is None else into[expert]
            into[...] = np.asarray(tensors[theirs], np.float32).T.reshape(into.shape)
    return arrays


def _path(stack: HfStack, ours: str) -> str:
    return f".{stack.name}.stacked.{ours}{LEAF}"


def _names(config: ModelConfig) -> HfNames:
    return HF_FORMATS[type(config)].names(config)


def _tied_once(tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Without the head that repeats the embedding."""
    head, embedding = tensors.get(HEAD), tensors.get(EMBEDDING)
    if head is not None and embedding is not None and not np.array_equal(head, embedding):
        raise ValueError(
            "config.json says tie_word_embeddings, but lm_head.weight is not model.embed_tokens.weight; if the model has a "
            "head of its own, set tie_word_embeddings to false in its config.json, else remove lm_head.weight"
        )
    return {name: tensor for name, tensor in tensors.items() if name != HEAD}
