"""The state of a run with an adapter. Its checkpoints hold the merged model, which everything reads, and the adapter beside it.

The base is not stored again: a resume reads it from the checkpoint that the run started from.
"""

import json

import jax

from lineage.artifact.store import Artifact
from trainer.array_files import open_arrays
from trainer.arrays import filled
from trainer.checkpoint import TrainState
from trainer.model.lora import Adapted
from trainer.model.transformer import Transformer
from trainer.spec.config import RunSpec
from trainer.spec.mesh import Layout
from trainer.step import initial_step_state

ADAPTER_SEED = 7
"""Folded into the run's seed, so that an adapter is not drawn like a model."""


def adapted_state(spec: RunSpec, base: Transformer, layout: Layout) -> TrainState:
    """The state before the first step: the base with a fresh adapter. Raises: ValueError for several devices."""
    assert spec.adapter is not None
    if layout.size > 1:
        raise ValueError(f"run {spec.name} has an adapter and a mesh of {layout.size} devices; adapters train on one device")
    key = jax.random.fold_in(jax.random.PRNGKey(spec.seed), ADAPTER_SEED)
    model = Adapted.init(base, spec.adapter, key=key)
    fresh = initial_step_state(spec, model)
    return TrainState(model, fresh.optimizer, 0, fresh.skip)


def read_adapted(artifact: Artifact, like: TrainState) -> TrainState:
    """The state of a checkpoint over the base of `like`."""
    model = like.model
    assert isinstance(model, Adapted)
    read = {name: filled(tree, open_arrays(artifact, name)) for name, tree in like.trees().items() if name != "model"}
    step = json.loads(artifact.file("state.json").read_text())["step"]
    resumed = Adapted(model.base, read["adapter"], model.scale, model.rate)
    return TrainState(resumed, read["optimizer"], step, read.get("skip"))
