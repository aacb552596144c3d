"""Checkpoints, format `checkpoint/1`: what a run needs to go on to the same bits, as an ordinary artifact.

`model.safetensors` and `optimizer.safetensors` hold the arrays by their path in the tree (in parts where several processes
wrote them: `trainer.arrays`), `state.json` the counters and the resolved inputs, `metrics.parquet` every step so far. No file
holds a time: two machines that compute the same write the same.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import polars as pl
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from lineage.config import from_jsonable, to_jsonable
from lineage.history import batches_read, is_imported
from lineage.store import Artifact
from lineage.writer import Writer
from trainer.array_files import Files, open_arrays
from trainer.arrays import HostArrays, copied_to_host, filled, shapes_of, words_of
from trainer.config import SHAPELESS_FIELDS, LlamaConfig, RunSpec, WarmStart
from trainer.necromancy import history_of, remembering, ring_names
from trainer.stage import FORMAT, MODEL_FILE, Weights

log = logging.getLogger("trainer")
METRICS_SCHEMA = {
    "step": pl.Int64,
    "loss_nats": pl.Float64,
    "learning_rate": pl.Float64,
    "grad_norm": pl.Float64,
    "skipped": pl.Boolean,
    "tokens_seen": pl.Int64,
    "update_norm": pl.Float64,
    "direction_norm": pl.Float64,
}
RECENT_STEPS = 20
PART = re.compile(r"\.(\d{5})-of-\d{5}\.safetensors$")


@dataclass(frozen=True)
class TrainState:
    """Model, optimizer state, steps taken, and what only some specs ask for: the memory of `skip_bad_steps`, the average."""

    model: PyTree
    optimizer: PyTree
    step: int
    skip: PyTree | None = None
    ema: PyTree | None = None

    def trees(self) -> dict[str, PyTree]:
        """The trees that a checkpoint has a file for, by the file's name."""
        found = {"model": self.model, "optimizer": self.optimizer, "skip": self.skip, "ema": self.ema}
        return {name: tree for name, tree in found.items() if tree is not None}


@dataclass(frozen=True)
class Snapshot:
    """A state in this process's memory, while the run goes on."""

    step: int
    arrays: Mapping[str, HostArrays]

    @property
    def nbytes(self) -> int:
        return sum(arrays.nbytes for arrays in self.arrays.values())

    def save(self, folder: Path) -> None:
        """Write the arrays that this process keeps."""
        for name, arrays in self.arrays.items():
            arrays.save(folder, name)


def snapshot(state: TrainState) -> Snapshot:
    """Copy a state to the host. It waits for the steps that lead to it."""
    return Snapshot(state.step, {name: copied_to_host(tree) for name, tree in state.trees().items()})


def write_checkpoint(
    out: Writer,
    spec: RunSpec,
    state: Snapshot,
    metrics: pl.DataFrame,
    throughput: Mapping,
    start: Artifact | None = None,
    how: Mapping[str, Mapping] | None = None,
) -> None:
    """Fill an artifact with a state and the metrics that led to it; `start` is the checkpoint its run began with, `how` says
    how it ran (`mesh`, `compute`), which is no part of its files."""
    state.save(out.folder)
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
        if (begin := first_sequence(spec, start)) > 0:
            out.extra["checkpoint"]["first_sequence"] = begin
    out.extra["checkpoint"] |= how or {}
    out.extra["throughput"] = dict(throughput)
    out.record(tokens_in=spec.tokens_before(state.step))


def read_checkpoint(artifact: Artifact, like: TrainState) -> tuple[TrainState, pl.DataFrame]:
    """State and metrics of a checkpoint, in the structure of `like`, its arrays where those (or their shapes) lie.

    Of several processes each reads the bytes that its own devices need, and no file whole that it has not here.
    """
    source = Files.of_artifact(artifact) if jax.process_count() > 1 else None
    step = json.loads(artifact.file("state.json").read_text())["step"]
    read = {name: filled(tree, open_arrays(artifact, name, source)) for name, tree in like.trees().items()}
    if source is not None:
        log.info("arrays: %d of %d bytes read", source.bytes_read, sum(source.sizes.values()))
    return TrainState(step=step, **read), pl.read_parquet(artifact.file("metrics.parquet"))


def verify_together(artifact: Artifact) -> None:
    """Hold every file to its digest, each in one process: the part that it wrote where as many processes go on.

    All processes call it and all agree. Raises: ValueError naming what is damaged, or which process found something.
    """
    count, index = jax.process_count(), jax.process_index()
    if count == 1:
        artifact.verify()
        return
    names = sorted(entry.path for entry in artifact.manifest.files)
    parts = {name: PART.search(name) for name in names}
    mine = [name for at, name in enumerate(names) if (int(part[1]) if (part := parts[name]) else at) % count == index]
    damage: ValueError | None = None
    try:
        artifact.verify(mine)
    except ValueError as error:
        damage = error
    told = multihost_utils.process_allgather(np.int32(damage is not None))
    if damage is not None:
        raise damage
    if told.any():
        raise ValueError(f"{artifact.name}: process {int(np.argmax(told))} found it damaged")


def warm_start(start: Artifact, fresh: TrainState, spec: RunSpec) -> TrainState:
    """A fresh state with the parameters of another run's checkpoint, at step 0.

    Raises: ValueError naming a field or an array that differs and is not declared, or a declared name that no array has.
    """
    config = spec.start
    if config is None:
        raise ValueError(f"run {spec.name} sets no start, and was given {start.name} to start from")
    _check_same_function(read_model_config(start), spec.model, config, start.name)
    new = set(config.new_parameters)
    source = Files.of_artifact(start) if jax.process_count() > 1 else None

    def stays(name: str) -> bool:
        return bool(words_of(name) & new)

    model = filled(fresh.model, open_arrays(start, "model", source), stays)
    optimizer, skip = fresh.optimizer, fresh.skip
    if config.optimizer == "carried":
        moments = open_arrays(start, "optimizer", source)
        rings = ring_names(moments.shapes.keys() | shapes_of(optimizer).keys())  # the guards', who have a choice of their own
        optimizer = filled(optimizer, moments, stays, rings)
    if config.guards == "rebuilt":
        optimizer, skip = remembering(optimizer, skip, history_of(start))
    unknown = new - {word for name in shapes_of(fresh.model) for word in words_of(name)}
    if unknown:
        raise ValueError(f"run.start.new_parameters names {', '.join(sorted(unknown))}, which no array of the model has")
    average = None if fresh.ema is None else jax.tree.map(jax.numpy.copy, eqx.filter(model, eqx.is_inexact_array))
    if config.average == "carried":
        average = filled(average, open_arrays(start, "ema", source), stays)
    return TrainState(model, optimizer, 0, skip, average)


def first_sequence(spec: RunSpec, start: Artifact | None) -> int:
    """The global sequence that step 0 of a run begins with: 0, or where the checkpoint that it continues ended.

    Raises: ValueError for a checkpoint whose data order cannot be continued: a published model's, one of other sequences.
    """
    if start is None or spec.start is None or spec.start.data == "restarted":
        return 0
    if is_imported(start):
        raise ValueError(f"run.start.data is 'continued', and what {start.name} has read is not known; it must be 'restarted'")
    facts = start.manifest.extra["checkpoint"]
    if facts["seq_len"] != spec.seq_len:
        raise ValueError(
            f"run.start.data is 'continued' and run.seq_len {spec.seq_len}, {start.name} was trained on sequences of "
            f"{facts['seq_len']}: a place in the one order is none in the other. Give the same seq_len, or 'restarted'"
        )
    return batches_read(start).first(facts["step"])


def read_model(artifact: Artifact, like: PyTree, weights: Weights = "raw") -> PyTree:
    """The model alone, with its raw weights or their average. Raises: ValueError where no average was kept."""
    return filled(like, open_arrays(artifact, "model" if weights == "raw" else "ema"))


def read_spec(artifact: Artifact) -> RunSpec:
    """The run spec that a checkpoint was trained by."""
    return from_jsonable(RunSpec, json.loads(artifact.file("spec.json").read_text()), where="spec.json")


def read_model_config(artifact: Artifact) -> LlamaConfig:
    """The model of a checkpoint, trained here or imported."""
    if any(entry.path == MODEL_FILE for entry in artifact.manifest.files):
        return from_jsonable(LlamaConfig, json.loads(artifact.file(MODEL_FILE).read_text()), where=MODEL_FILE)
    return read_spec(artifact).model


def _recent_loss(metrics: pl.DataFrame) -> float:
    """Mean loss of the last steps; those whose loss is not finite (skipped, by a spec that allows it) are left out."""
    losses = metrics["loss_nats"].tail(RECENT_STEPS).to_numpy()
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        raise FloatingPointError(f"none of the last {losses.size} losses is finite; the last checkpoint stands")
    return float(np.mean(finite))


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


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
