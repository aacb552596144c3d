"""Checkpoints, format `checkpoint/1`: what a run needs to go on to the same bits, as an ordinary artifact.

`model.safetensors` and `optimizer.safetensors` hold the arrays by their path in the tree, `state.json` the counters and the
resolved inputs, `metrics.parquet` every step so far. No file holds a time: two machines that compute the same write the same.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import numpy as np
import polars as pl
from jaxtyping import PyTree
from safetensors.numpy import load_file, save_file

from lineage.config import from_jsonable, to_jsonable
from lineage.store import Artifact, Writer
from trainer.config import SHAPELESS_FIELDS, LlamaConfig, RunSpec, WarmStart
from trainer.stage import FORMAT, MODEL_FILE

METRICS_SCHEMA = {
    "step": pl.Int64,
    "loss_nats": pl.Float64,
    "learning_rate": pl.Float64,
    "grad_norm": pl.Float64,
    "skipped": pl.Boolean,
    "tokens_seen": pl.Int64,
}
RECENT_STEPS = 20
type Weights = Literal["raw", "ema"]


@dataclass(frozen=True)
class TrainState:
    """Model, optimizer state, steps taken, and what only some specs ask for: the memory of `skip_bad_steps`, the average."""

    model: PyTree
    optimizer: PyTree
    step: int
    skip: PyTree | None = None
    ema: PyTree | None = None


def write_checkpoint(
    out: Writer, spec: RunSpec, state: TrainState, metrics: pl.DataFrame, throughput: Mapping, start: Artifact | None = None
) -> None:
    """Fill an artifact with a state and the metrics that led to it; `start` is the checkpoint its run began with."""
    save_file(_arrays(state.model), out.folder / "model.safetensors")
    save_file(_arrays(state.optimizer), out.folder / "optimizer.safetensors")
    for name, tree in (("skip", state.skip), ("ema", state.ema)):
        if tree is not None:
            save_file(_arrays(tree), out.folder / f"{name}.safetensors")
    record = {
        "format": FORMAT,
        "step": state.step,
        "seed": spec.seed,
        "inputs": [ref.identity() for ref in out.spec.inputs],
    }
    _write_json(out.folder / "state.json", record)
    _write_json(out.folder / "spec.json", to_jsonable(spec))
    metrics.write_parquet(out.folder / "metrics.parquet", compression="zstd")
    out.extra["checkpoint"] = {
        "format": FORMAT,
        "step": state.step,
        "batch_size": spec.batches.to_record(),
        "seq_len": spec.seq_len,
        "tokens_seen": spec.tokens_before(state.step),
        "loss_nats": _recent_loss(metrics),
        "vocab_size": spec.model.vocab_size,
        "parameters": spec.model.num_parameters,
    }
    if start is not None:
        out.extra["checkpoint"]["start"] = _start_record(start)
    out.extra["throughput"] = dict(throughput)
    out.record(tokens_in=spec.tokens_before(state.step))


def read_checkpoint(artifact: Artifact, like: TrainState) -> tuple[TrainState, pl.DataFrame]:
    """State and metrics of a checkpoint, in the structure of `like`."""
    folder = artifact.folder()
    state = json.loads((folder / "state.json").read_text())
    restored = TrainState(
        model=_filled(like.model, load_file(folder / "model.safetensors"), artifact.name),
        optimizer=_filled(like.optimizer, load_file(folder / "optimizer.safetensors"), artifact.name),
        step=state["step"],
        skip=_restored(like.skip, artifact, "skip"),
        ema=_restored(like.ema, artifact, "ema"),
    )
    return restored, pl.read_parquet(folder / "metrics.parquet")


def warm_start(start: Artifact, fresh: TrainState, spec: RunSpec) -> TrainState:
    """A fresh state with the parameters of another run's checkpoint, at step 0; an average begins at those parameters.

    Raises: ValueError naming a field or an array that differs and is not declared, or a declared name that no array has.
    """
    config = spec.start
    if config is None:
        raise ValueError(f"run {spec.name} sets no start, and was given {start.name} to start from")
    _check_same_function(read_model_config(start), spec.model, config, start.name)
    folder = start.folder()
    new = config.new_parameters
    model = _filled(fresh.model, load_file(folder / "model.safetensors"), start.name, new)
    optimizer = fresh.optimizer
    if config.optimizer == "carried":
        optimizer = _filled(fresh.optimizer, load_file(folder / "optimizer.safetensors"), start.name, new)
    unknown = set(new) - {word for name in _shapes(fresh.model) for word in _words(name)}
    if unknown:
        raise ValueError(f"run.start.new_parameters names {', '.join(sorted(unknown))}, which no array of the model has")
    average = None if fresh.ema is None else jax.tree.map(jax.numpy.copy, eqx.filter(model, eqx.is_inexact_array))
    return TrainState(model, optimizer, 0, fresh.skip, average)


def read_model(artifact: Artifact, like: PyTree, weights: Weights = "raw") -> PyTree:
    """The model alone, with its raw weights or their average. Raises: ValueError where no average was kept."""
    path = artifact.folder() / ("model.safetensors" if weights == "raw" else "ema.safetensors")
    if not path.exists():
        raise ValueError(f"{artifact.name} has no {path.name}; its run spec sets no ema, so weights must be 'raw'")
    return _filled(like, load_file(path), artifact.name)


def read_spec(artifact: Artifact) -> RunSpec:
    """The run spec that a checkpoint was trained by."""
    return from_jsonable(RunSpec, json.loads((artifact.folder() / "spec.json").read_text()), where="spec.json")


def read_model_config(artifact: Artifact) -> LlamaConfig:
    """The model of a checkpoint, trained here or imported."""
    path = artifact.folder() / MODEL_FILE
    if path.exists():
        return from_jsonable(LlamaConfig, json.loads(path.read_text()), where=MODEL_FILE)
    return read_spec(artifact).model


def _recent_loss(metrics: pl.DataFrame) -> float:
    """Mean loss of the last steps; those whose loss is not finite (skipped, by a spec that allows it) are left out."""
    losses = metrics["loss_nats"].tail(RECENT_STEPS).to_numpy()
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        raise FloatingPointError(f"none of the last {losses.size} losses is finite; the last checkpoint stands")
    return float(np.mean(finite))


def _restored(like: PyTree | None, artifact: Artifact, name: str) -> PyTree | None:
    return None if like is None else _filled(like, load_file(artifact.folder() / f"{name}.safetensors"), artifact.name)


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _start_record(start: Artifact) -> dict[str, object]:
    """What a checkpoint's manifest says of the run before it, and of all before that."""
    facts = start.manifest.extra["checkpoint"]
    earlier = facts.get("start", {}).get("tokens_seen", 0)
    return {
        "name": start.name,
        "address": start.spec.address,
        "step": facts["step"],
        "tokens_seen": facts["tokens_seen"] + earlier,
    }


def _filled(like: PyTree, arrays: Mapping[str, np.ndarray], where: str, new: tuple[str, ...] = ()) -> PyTree:
    """`like` with its arrays replaced by name; those whose name has a word of `new`, and which `arrays` lacks, stay."""
    wanted = _shapes(like)
    found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    kept = {name for name in wanted.keys() - found.keys() if _words(name) & set(new)}
    odd = sorted(name for name in (wanted.keys() | found.keys()) - kept if wanted.get(name) != found.get(name))
    if odd:
        raise ValueError(
            f"{where}: array {odd[0]} is {found.get(odd[0])} in the checkpoint, the run spec needs {wanted.get(odd[0])}"
        )

    def fill(path: tuple, leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        return leaf if name in kept else jax.numpy.asarray(arrays[name])

    dynamic, static = eqx.partition(like, _is_array_or_shape)
    return eqx.combine(jax.tree_util.tree_map_with_path(fill, dynamic), static)


def _check_same_function(there: LlamaConfig, here: LlamaConfig, config: WarmStart, where: str) -> None:
    """Equal arrays do not make an equal model: other rotary frequencies or another window fit the same shapes."""
    differs = [name for name in SHAPELESS_FIELDS if getattr(there, name) != getattr(here, name)]
    undeclared = [name for name in differs if name not in config.changed_fields]
    if undeclared:
        name = undeclared[0]
        raise ValueError(
            f"model.{name} is {getattr(here, name)!r}, in {where} it is {getattr(there, name)!r}; if that is meant, name it in "
            "run.start.changed_fields"
        )


def _words(name: str) -> set[str]:
    return set(re.findall(r"\w+", name))


def _is_array_or_shape(leaf: object) -> bool:
    """What a tree that is to be filled may hold: arrays, or only their shapes (`eqx.filter_eval_shape` makes no array)."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _shapes(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, _is_array_or_shape))
    return {jax.tree_util.keystr(path): (tuple(leaf.shape), str(leaf.dtype)) for path, leaf in leaves}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
