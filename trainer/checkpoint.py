"""Checkpoints, format `checkpoint/1`: what a run needs to resume with the same bits, as an ordinary artifact.

`model.safetensors` and `optimizer.safetensors` hold the arrays by their path in the tree (in parts if several processes wrote
them: `trainer.arrays`), `state.json` the counters and the resolved inputs, `metrics.parquet` every step so far. No file holds a
time: two machines that compute the same write the same bytes.
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

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.order.history import batches_read, is_imported
from lineage.writing.writer import Writer
from trainer.array_files import ArrayFiles, Files, open_arrays
from trainer.arrays import HostArrays, copied_to_host, filled, shapes_of, words_of
from trainer.guard_history import history_of, restore_guards, ring_names
from trainer.model.lora import Adapted
from trainer.model.parts import parameters_of, parted
from trainer.new_rows import MoreRows, check_more_rows
from trainer.router_table import FILE as ROUTER_FILE
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.models import ModelConfig, read_config
from trainer.spec.moe import MoeConfig
from trainer.spec.stage import FORMAT, MODEL_FILE, Weights
from trainer.upcycling import MlpsAsExperts, check_upcycling

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
    """Model, optimizer state and number of steps; with some specs also the state of `skip_bad_steps` and the average."""

    model: PyTree
    optimizer: PyTree
    step: int
    skip: PyTree | None = None
    ema: PyTree | None = None

    def trees(self) -> dict[str, PyTree]:
        """The trees that a checkpoint stores, by the name of their file; a model with an adapter is stored merged."""
        adapted = isinstance(self.model, Adapted)
        model, adapter = (self.model.merged(), self.model.adapter) if adapted else (self.model, None)
        trees = {"model": model, "adapter": adapter, "optimizer": self.optimizer, "skip": self.skip, "ema": self.ema}
        return {name: tree for name, tree in trees.items() if tree is not None}


@dataclass(frozen=True)
class Tables:
    """What a checkpoint reports about its steps: a row a step. With experts also a row a step and layer (`router_table`)."""

    metrics: pl.DataFrame
    router: pl.DataFrame | None = None


@dataclass(frozen=True)
class Snapshot:
    """A copy of a state in host memory; training continues meanwhile."""

    step: int
    arrays: Mapping[str, HostArrays]

    @property
    def nbytes(self) -> int:
        return sum(arrays.nbytes for arrays in self.arrays.values())

    def save(self, folder: Path) -> None:
        """Write the arrays that this process holds."""
        for name, arrays in self.arrays.items():
            arrays.save(folder, name)


def snapshot(state: TrainState) -> Snapshot:
    """Copy a state to the host. Waits for the steps that compute it."""
    return Snapshot(state.step, {name: copied_to_host(tree) for name, tree in state.trees().items()})


def write_checkpoint(
    out: Writer,
    spec: RunSpec,
    state: Snapshot,
    tables: Tables,
    throughput: Mapping,
    start: Artifact | None = None,
    how: Mapping[str, Mapping] | None = None,
) -> None:
    """Write a state and the tables of all its steps into an artifact.

    `start` is the checkpoint that the run started from. `how` says how the run was computed (`mesh`, `compute`); it goes into
    the manifest only.
    """
    state.save(out.folder)
    record = {
        "format": FORMAT,
        "step": state.step,
        "seed": spec.seed,
        "inputs": [ref.identity() for ref in out.spec.inputs],
    }
    _write_json(out.folder / "state.json", record)
    _write_json(out.folder / "spec.json", to_jsonable(spec))
    tables.metrics.write_parquet(out.folder / "metrics.parquet", compression="zstd")
    if tables.router is not None:
        tables.router.write_parquet(out.folder / ROUTER_FILE, compression="zstd")
    out.extra["checkpoint"] = {
        "format": FORMAT,
        "step": state.step,
        "batch_size": spec.batches.to_record(),
        "seq_len": spec.seq_len,
        "tokens_seen": spec.tokens_before(state.step),
        "loss_nats": _recent_loss(tables.metrics),
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


def read_checkpoint(artifact: Artifact, like: TrainState) -> tuple[TrainState, Tables]:
    """State and tables of a checkpoint, in the structure and with the placement of `like` (arrays or shapes).

    Each of several processes reads only the bytes that its devices need.
    """
    source = Files.of_artifact(artifact) if jax.process_count() > 1 else None
    step = json.loads(artifact.file("state.json").read_text())["step"]
    read = {name: filled(tree, open_arrays(artifact, name, source)) for name, tree in like.trees().items()}
    if source is not None:
        log.info("arrays: %d of %d bytes read", source.bytes_read, sum(source.sizes.values()))
    # `artifact.files` would fetch every file of a remote checkpoint.
    router = pl.read_parquet(artifact.file(ROUTER_FILE)) if ROUTER_FILE in artifact.manifest.paths else None
    return TrainState(step=step, **read), Tables(pl.read_parquet(artifact.file("metrics.parquet")), router)


def verify_together(artifact: Artifact) -> None:
    """Compare every file with its digest, each file in one process: its own part if the number of processes is the same.

    All processes call it and agree on the result. Raises: ValueError naming the damage, or the process that found it.
    """
    count, index = jax.process_count(), jax.process_index()
    if count == 1:
        artifact.verify()
        return
    names = sorted(entry.path for entry in artifact.manifest.files)
    parts = {name: PART.search(name) for name in names}
    own_names = [name for at, name in enumerate(names) if (int(part[1]) if (part := parts[name]) else at) % count == index]
    damage: ValueError | None = None
    try:
        artifact.verify(own_names)
    except ValueError as error:
        damage = error
    damaged = multihost_utils.process_allgather(np.int32(damage is not None))
    if damage is not None:
        raise damage
    if damaged.any():
        raise ValueError(f"{artifact.name}: process {int(np.argmax(damaged))} found damage")


def warm_start(start: Artifact, fresh: TrainState, spec: RunSpec) -> TrainState:
    """A fresh state with the parameters of another run's checkpoint, at step 0.

    Raises: ValueError naming a field or an array that differs without being declared, or a declared name without an array.
    """
    config = spec.start
    if config is None:
        raise ValueError(
            f"run {spec.name} sets no start, but its input start is {start.name}; set run.start or remove the input"
        )
    there, upcycles = read_model_config(start), config.experts == "from_mlp"
    if upcycles:
        check_upcycling(there, spec.model, start.name)
    else:
        _check_same_function(there, spec.model, config, start.name)
    new = set(config.new_parameters)
    source = Files.of_artifact(start) if jax.process_count() > 1 else None

    def is_new(name: str) -> bool:
        return bool(words_of(name) & new)

    kept = open_arrays(start, "model", source)
    arrays: ArrayFiles | MlpsAsExperts | MoreRows = kept
    if upcycles and isinstance(spec.model, MoeConfig):
        arrays = MlpsAsExperts(kept, spec.model.num_experts)
    if config.new_rows == "mean":
        check_more_rows(there, spec.model, start.name)
        arrays = MoreRows(kept, there.vocab_size, spec.model.vocab_size)
    model = filled(fresh.model, arrays, is_new)
    optimizer, skip = fresh.optimizer, fresh.skip
    if config.optimizer == "carried":
        moments = open_arrays(start, "optimizer", source)
        rings = ring_names(moments.shapes.keys() | shapes_of(optimizer).keys())  # `guards` decides about these
        optimizer = filled(optimizer, moments, is_new, rings)
    if config.guards == "rebuilt":
        optimizer, skip = restore_guards(optimizer, skip, history_of(start))
    unknown = new - {word for name in shapes_of(fresh.model) for word in words_of(name)}
    if unknown:
        raise ValueError(f"run.start.new_parameters names {', '.join(sorted(unknown))}, which no array of the model has")
    average = None if fresh.ema is None else jax.tree.map(jax.numpy.copy, parameters_of(model))
    if config.average == "carried":
        average = filled(average, open_arrays(start, "ema", source), is_new)
    return TrainState(model, optimizer, 0, skip, average)


def first_sequence(spec: RunSpec, start: Artifact | None) -> int:
    """The global sequence that step 0 of a run begins with: 0, or the end of the checkpoint that it continues.

    Raises: ValueError for a checkpoint whose data order cannot be continued: a published model, or another sequence length.
    """
    if start is None or spec.start is None or spec.start.data == "restarted":
        return 0
    if is_imported(start):
        raise ValueError(f"run.start.data is 'continued', but what {start.name} has read is not known; it must be 'restarted'")
    facts = start.manifest.extra["checkpoint"]
    if facts["seq_len"] != spec.seq_len:
        raise ValueError(
            f"run.start.data is 'continued' and run.seq_len {spec.seq_len}, {start.name} was trained on sequences of "
            f"{facts['seq_len']}: positions in one data order mean nothing in the other. Give the same seq_len, or 'restarted'"
        )
    return batches_read(start).first(facts["step"])


def read_model(artifact: Artifact, like: PyTree, weights: Weights = "raw") -> PyTree:
    """Return the model alone, with its raw weights or their average.

    A router's balancing bias has no average: it is the raw one in both. Raises: ValueError if the checkpoint has no average.
    """
    if weights == "raw":
        return filled(like, open_arrays(artifact, "model"))
    parameters, state, rest = parted(like)
    averaged = filled(parameters, open_arrays(artifact, "ema"))
    if jax.tree.leaves(state):  # a bias is not averaged
        state = parted(filled(like, open_arrays(artifact, "model")))[1]
    return eqx.combine(averaged, state, rest)


def read_spec(artifact: Artifact) -> RunSpec:
    """The run spec that a checkpoint was trained by."""
    return from_jsonable(RunSpec, json.loads(artifact.file("spec.json").read_text()), where="spec.json")


def read_model_config(artifact: Artifact) -> ModelConfig:
    """The config of a checkpoint's model, trained here or imported."""
    if any(entry.path == MODEL_FILE for entry in artifact.manifest.files):
        return read_config(json.loads(artifact.file(MODEL_FILE).read_text()), MODEL_FILE)
    return read_spec(artifact).model


def _recent_loss(metrics: pl.DataFrame) -> float:
    """Mean loss of the last steps, without those whose loss is not finite (they were skipped)."""
    losses = metrics["loss_nats"].tail(RECENT_STEPS).to_numpy()
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        raise FloatingPointError(f"none of the last {losses.size} losses is finite; the last checkpoint is valid")
    return float(np.mean(finite))


def _start_record(start: Artifact) -> dict[str, object]:
    """What a checkpoint's manifest records of the run that it started from, and of all earlier ones."""
    facts = start.manifest.extra["checkpoint"]
    earlier = facts.get("start", {}).get("tokens_seen", 0)
    return {
        "name": start.name,
        "address": start.spec.address,
        "step": facts["step"],
        "tokens_seen": facts["tokens_seen"] + earlier,
    }


def _check_same_function(there: ModelConfig, here: ModelConfig, config: WarmStart, where: str) -> None:
    """Check that two models with equal arrays compute the same function: their rotary frequencies, window and the like.

    Raises: ValueError for models of two kinds, and for a field that differs and is not in `config.changed_fields`.
    """
    if type(there) is not type(here):
        raise ValueError(
            f"the run's model is a {type(here).__name__}, {where} holds a {type(there).__name__}; both must be of one kind"
        )
    differs = [name for name in here.NO_ARRAY_FIELDS if getattr(there, name) != getattr(here, name)]
    undeclared = [name for name in differs if name not in config.changed_fields]
    if undeclared:
        name = undeclared[0]
        raise ValueError(
            f"model.{name} is {getattr(here, name)!r}, in {where} it is {getattr(there, name)!r}; if intended, name it in "
            "run.start.changed_fields"
        )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
