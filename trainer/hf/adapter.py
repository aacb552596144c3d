"""The stage `trainer.hf_adapter`: an adapter as a folder that `peft` opens over the exported base. Imports no JAX."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import save_file

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.array_files import open_arrays
from trainer.hf.convert import architecture
from trainer.hf.format import LEAF, MATRICES
from trainer.spec.config import RunSpec
from trainer.spec.lora import LoraConfig

THEIRS = {ours.rpartition(".")[2]: theirs for theirs, ours in MATRICES.items()}
"""Our weight to their module within a layer: `w_q` to `self_attn.q_proj`."""


@dataclass(frozen=True)
class AdapterExportConfig:
    """`base` is the name or folder of the base that `adapter_config.json` states."""

    base: str = ""


def export_adapter(out: Writer, config: AdapterExportConfig, checkpoint: Artifact) -> None:
    """Write `adapter_model.safetensors` and `adapter_config.json`. Raises: ValueError for a checkpoint without an adapter."""
    run = from_jsonable(RunSpec, checkpoint.spec.config["run"], f"{checkpoint.name} run")
    if run.adapter is None:
        raise ValueError(f"{checkpoint.name} was trained without an adapter; export it with the stage trainer.hf_model")
    tensors = peft_tensors(open_arrays(checkpoint, "adapter").whole(), run.adapter)
    save_file(tensors, out.folder / "adapter_model.safetensors", metadata={"format": "pt"})
    stated = json.dumps(stated_config(run.adapter, config.base), indent=2)
    (out.folder / "adapter_config.json").write_text(stated + "\n")
    out.extra["hf_adapter"] = {"architecture": architecture(run.model), "rank": run.adapter.rank}
    out.record(bytes_out=sum(tensor.nbytes for tensor in tensors.values()))


def stated_config(config: LoraConfig, base: str) -> dict[str, object]:
    """`adapter_config.json`."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": sorted(THEIRS[name].rpartition(".")[2] for name in config.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def peft_tensors(arrays: Mapping[str, np.ndarray], config: LoraConfig) -> dict[str, np.ndarray]:
    """Their tensors, [rank, in] and [out, rank] for every layer, from ours."""
    tensors = {}
    for name in config.targets:
        down, up = (arrays[f".stacked.{side}['{name}']{LEAF}"] for side in ("down", "up"))
        for layer in range(down.shape[0]):
            module = f"base_model.model.model.layers.{layer}.{THEIRS[name]}"
            tensors[f"{module}.lora_A.weight"] = np.ascontiguousarray(down[layer].reshape(-1, config.rank).T)
            tensors[f"{module}.lora_B.weight"] = np.ascontiguousarray(up[layer].reshape(config.rank, -1).T)
    return tensors


HF_ADAPTER = Stage(
    "trainer.hf_adapter",
    "1",
    export_adapter,
    description="The adapter of a checkpoint as PEFT's files.",
    checks=("file_set",),
)
