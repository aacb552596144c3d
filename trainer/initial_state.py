"""The state that a run starts from: its own last whole checkpoint, else the one its spec names, else fresh parameters."""

import logging
from dataclasses import dataclass

import equinox as eqx
import jax
import polars as pl

from lineage.artifact.store import Artifact
from lineage.jobs.job import Job
from lineage.order.history import MIXTURE
from trainer.adapted_state import adapted_state, read_adapted
from trainer.checkpoint import METRICS_SCHEMA, Tables, TrainState, first_sequence, read_checkpoint, verify_together, warm_start
from trainer.model.build import init_model
from trainer.resume_checks import check_frozen_inputs, refuse_other_inputs
from trainer.saving import saved_before, step_of
from trainer.spec.config import RunSpec
from trainer.spec.mesh import Layout
from trainer.spec.stage import CheckpointConfig
from trainer.step import initial_step_state

log = logging.getLogger("trainer")


def initial_state(spec: RunSpec, layout: Layout | None = None) -> TrainState:
    """Fresh parameters and optimizer state, a function of the spec alone.

    Each of several devices computes its own share in one compiled program, whose rounding may differ from that of one device in
    the last bit of a parameter.
    """
    if layout is None or layout.size == 1:
        return _initial(spec)
    shardings = layout.shardings(eqx.filter_eval_shape(lambda: _initial(spec).trees()))
    return TrainState(step=0, **jax.jit(lambda: _initial(spec).trees(), out_shardings=shardings)())


def _initial(spec: RunSpec) -> TrainState:
    model = init_model(spec.model, key=jax.random.PRNGKey(spec.seed))
    fresh = initial_step_state(spec, model)
    return TrainState(model, fresh.optimizer, 0, fresh.skip, fresh.ema)


def state_shapes(spec: RunSpec, layout: Layout) -> TrainState:
    """Shapes and placement of a run's state, without numbers."""
    shapes = eqx.filter_eval_shape(lambda: _initial(spec).trees())
    placed = jax.tree.map(
        lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where), shapes, layout.shardings(shapes)
    )
    return TrainState(step=0, **placed)


def start_input(job: Job, spec: RunSpec) -> Artifact | None:
    """The checkpoint to start from. Raises: ValueError if only one of spec and inputs names one."""
    given = job.inputs.get("start")
    if (given is None) != (spec.start is None):
        declared = "sets start" if spec.start is not None else "sets no start"
        raise ValueError(f"run {spec.name} {declared}, its inputs are {', '.join(job.inputs)}; give both or neither")
    assert given is None or isinstance(given, Artifact)
    return given


def log_first_sequence(spec: RunSpec, start: Artifact | None, mixture: Artifact) -> int:
    """Like `first_sequence`, but logs the choice."""
    begin = first_sequence(spec, start)
    if begin and start is not None:
        before = start.input(MIXTURE)
        same = before.data_version == mixture.data_version
        which = (
            f"of {mixture.name}, as before" if same else f"of {mixture.name}; it was {before.name} before, with another order"
        )
        log.info("%s: data continue at sequence %d %s", spec.name, begin, which)
    return begin


def starting_state(job: Job, config: CheckpointConfig, start: Artifact | None, layout: Layout) -> tuple[TrainState, Tables]:
    """Return the state and tables of this run's last undamaged checkpoint.

    Without a checkpoint, return the state of a warm start, or a fresh one, with empty tables.
    Raises: ValueError if an unfinished run of the same name had other inputs.
    """
    refuse_other_inputs(job)
    begin = _Beginning(config.run, start, layout)
    for checkpoint in saved_before(job, config.step):
        try:
            verify_together(checkpoint)
        except ValueError as error:
            log.error("%s: %s; trying the checkpoint before it", config.run.name, error)
            continue
        check_frozen_inputs(job, checkpoint)
        log.info("resuming %s at step %d from %s", config.run.name, step_of(checkpoint), checkpoint.uri)
        return begin.resumed(checkpoint)
    return begin.state(), Tables(pl.DataFrame(schema=METRICS_SCHEMA))


@dataclass(frozen=True)
class _Beginning:
    """What a run begins with, and what a resume needs of it."""

    spec: RunSpec
    start: Artifact | None
    layout: Layout

    def state(self) -> TrainState:
        """Fresh, or a warm start, with a fresh adapter where the spec has one."""
        spec, start = self.spec, self.start
        state = initial_state(spec, self.layout)
        if start is not None and spec.start is not None:
            state = warm_start(start, state, spec)
            new = ", ".join(spec.start.new_parameters) or "nothing"
            log.info("%s: warm start from %s, optimizer %s, new: %s", spec.name, start.uri, spec.start.optimizer, new)
        return state if spec.adapter is None else adapted_state(spec, state.model, self.layout)

    def resumed(self, checkpoint: Artifact) -> tuple[TrainState, Tables]:
        """State and tables of a checkpoint of the run; the base of an adapter comes from the start."""
        if self.spec.adapter is None:
            return read_checkpoint(checkpoint, state_shapes(self.spec, self.layout))
        return read_adapted(checkpoint, self.state()), Tables(pl.read_parquet(checkpoint.file("metrics.parquet")))
