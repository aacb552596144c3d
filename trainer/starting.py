"""What a run starts from: the last whole checkpoint of its own, else the one that its spec names, else fresh parameters."""

import logging

import equinox as eqx
import jax
import polars as pl

from lineage.history import MIXTURE
from lineage.jobs import Job
from lineage.store import Artifact
from trainer.checkpoint import METRICS_SCHEMA, TrainState, first_sequence, read_checkpoint, verify_together, warm_start
from trainer.config import RunSpec
from trainer.mesh import Layout
from trainer.model import Llama
from trainer.saving import saved_before, step_of
from trainer.stage import CheckpointConfig
from trainer.step import initial_step_state
from trainer.unfinished import check_frozen_inputs, refuse_other_inputs

log = logging.getLogger("trainer")


def initial_state(spec: RunSpec, layout: Layout | None = None) -> TrainState:
    """Fresh parameters and optimizer state, a function of the spec alone.

    Over several devices each makes its own share, in one compiled program, whose rounding may differ from one device's in the
    last bit of a parameter.
    """
    if layout is None or layout.size == 1:
        return _initial(spec)
    shardings = layout.shardings(eqx.filter_eval_shape(lambda: _initial(spec).trees()))
    return TrainState(step=0, **jax.jit(lambda: _initial(spec).trees(), out_shardings=shardings)())


def _initial(spec: RunSpec) -> TrainState:
    model = Llama.init(spec.model, key=jax.random.PRNGKey(spec.seed))
    fresh = initial_step_state(spec, model)
    return TrainState(model, fresh.optimizer, 0, fresh.skip, fresh.ema)


def state_shapes(spec: RunSpec, layout: Layout) -> TrainState:
    """An initial state without its numbers: shapes, and where each array is to lie."""
    shapes = eqx.filter_eval_shape(lambda: _initial(spec).trees())
    placed = jax.tree.map(
        lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where), shapes, layout.shardings(shapes)
    )
    return TrainState(step=0, **placed)


def start_input(job: Job, spec: RunSpec) -> Artifact | None:
    """The checkpoint to start from. Raises: ValueError where the spec and the inputs disagree whether there is one."""
    given = job.inputs.get("start")
    if (given is None) != (spec.start is None):
        said = "sets start" if spec.start is not None else "sets no start"
        raise ValueError(f"run {spec.name} {said}, its inputs are {', '.join(job.inputs)}; give both or neither")
    assert given is None or isinstance(given, Artifact)
    return given


def told_first_sequence(spec: RunSpec, start: Artifact | None, mixture: Artifact) -> int:
    """The same as `first_sequence`, and told."""
    begin = first_sequence(spec, start)
    if begin and start is not None:
        before = start.input(MIXTURE)
        same = before.data_version == mixture.data_version
        which = f"of {mixture.name}, as before" if same else f"of {mixture.name}; before it was {before.name}, another order"
        log.info("%s: data go on at sequence %d %s", spec.name, begin, which)
    return begin


def starting_state(
    job: Job, config: CheckpointConfig, start: Artifact | None, layout: Layout
) -> tuple[TrainState, pl.DataFrame]:
    """The state of the last whole checkpoint of this run, else that of the run it starts from, else a fresh one.

    Raises: ValueError where an unfinished run of that name had other inputs.
    """
    refuse_other_inputs(job)
    for found in saved_before(job, config.step):
        try:
            verify_together(found)
        except ValueError as error:
            log.error("%s: %s; the checkpoint before it is tried", config.run.name, error)
            continue
        check_frozen_inputs(job, found)
        log.info("resuming %s at step %d from %s", config.run.name, step_of(found), found.uri)
        return read_checkpoint(found, state_shapes(config.run, layout))
    state = initial_state(config.run, layout)
    if start is not None and config.run.start is not None:
        state = warm_start(start, state, config.run)
        new = ", ".join(config.run.start.new_parameters) or "nothing"
        log.info("%s: warm start from %s, optimizer %s, new: %s", config.run.name, start.uri, config.run.start.optimizer, new)
    return state, pl.DataFrame(schema=METRICS_SCHEMA)
