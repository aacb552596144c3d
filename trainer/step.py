"""One training step, compiled: gradients (accumulated over microbatches), the rule, and the guard around both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from trainer.gradient_noise import PartSquares, noise_terms, nothing_yet, with_part
from trainer.learning_rate import learning_rates
from trainer.model.balance import balancing_bias
from trainer.model.lora import Adapted
from trainer.model.parts import joined, parted
from trainer.model.protocol import LanguageModel
from trainer.model.router import Routing
from trainer.norms import norms
from trainer.objectives import Objective, Sums, load_shares, next_token
from trainer.optimizers.build import averaged, build_optimizer, clip_ring, select
from trainer.optimizers.rolling import SkipState, accept_step, empty_skip_state, last_value
from trainer.preferences import preferences
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec
from trainer.spec.mesh import BATCH_AXES, Layout
from trainer.spec.models import ModelConfig
from trainer.spec.moe import MoeConfig
from trainer.spec.objectives import Dpo, NextToken

OBJECTIVES: Mapping[type, Callable[[RunSpec, Compute], Objective]] = {NextToken: next_token, Dpo: preferences}
"""How each objective of a run spec is computed."""


class StepState(NamedTuple):
    """What a step changes. Guards and average are None unless the spec sets them, `router` is for a dense model."""

    parameters: PyTree
    optimizer: PyTree
    skip: SkipState | None = None
    ema: PyTree | None = None
    router: PyTree | None = None
    """The balancing bias, shaped as the model with None for everything else."""


class RouterMetrics(NamedTuple):
    """What the routers of L layers did in a step, before it changed their bias."""

    loads: Int[Array, "L E"]
    """Assignments by expert, before any capacity."""
    dropped: Int[Array, " L"]
    """Assignments above capacity."""
    bias_norm: Float[Array, " L"]


class StepMetrics(NamedTuple):
    """Metrics of a step, on the device until they are read."""

    loss: Array
    """Mean nats per token, before the step."""
    learning_rate: Array
    grad_norm: Array
    """Global norm before the clip."""
    skipped: Bool[Array, ""]
    skipped_in_a_row: Array
    direction_norm: Array
    """Global norm of the direction before `clip_update_norm`, with weight decay and without the learning rate."""
    norms: Float[Array, "3 weights"]
    """Norms of gradients, of parameters before the step, and of the update, one per weight and layer (`trainer.norms`)."""
    router: RouterMetrics | None = None
    """None for a dense model."""
    extras: dict[str, Array] | None = None
    """More scalars of the objective by name (`trainer.objectives.Sums`)."""
    noise: Float[Array, "2"] | None = None
    """Estimates of |G|^2 and tr(Sigma) (`trainer.gradient_noise`); None unless the spec asks for them."""


def initial_step_state(spec: RunSpec, model: LanguageModel) -> StepState:
    """The state before the first step, a function of spec and model."""
    parameters, router, _ = parted(model)
    return StepState(
        parameters,
        build_optimizer(spec, model).init(parameters),
        None if spec.skip_bad_steps is None else empty_skip_state(spec.skip_bad_steps),
        None if spec.ema is None else jax.tree.map(jnp.copy, parameters),  # a copy, because a step donates both buffers
        jax.tree.map(jnp.copy, router) if jax.tree.leaves(router) else None,
    )


class StepProgram(Protocol):
    """The jitted step: (state, batch, learning rate) -> (state, metrics)."""

    def __call__(self, state: StepState, batch: PyTree, rate: np.float32) -> tuple[StepState, StepMetrics]: ...

    def trace(self, *arguments: PyTree) -> Any:
        """JAX's traced program, from shapes or arrays."""


@dataclass(frozen=True)
class StepFunction:
    """A compiled step of a run. The program takes the rate as an argument: runs that differ in schedule or length share it."""

    program: StepProgram
    rates: Float[np.ndarray, " steps"]
    dropout_seed: int | None = None
    """Seed of an adapter's dropout; None: the run has none."""

    def __call__(self, state: StepState, batch: PyTree, step: int) -> tuple[StepState, StepMetrics]:
        """`batch` is what the objective takes: a `trainer.batch.Batch` for next-token, or another tree of arrays with the rows
        of the batch as their first axis. `step` counts from 0 to the run's `num_steps`, exclusive; IndexError beyond it."""
        return self.program(state, self.read_batch(batch, step), self.rates[step])

    def read_batch(self, batch: PyTree, step: int) -> PyTree:
        """The batch as the program takes it: with a key for each row if the step drops at random."""
        if self.dropout_seed is None:
            return batch
        return batch, row_keys(self.dropout_seed, step, jax.tree.leaves(batch)[0].shape[0])


def row_keys(seed: int, step: int, rows: int) -> UInt32[np.ndarray, "R 2"]:
    """Return a key of `jax.random` for each row of a batch, a function of seed, step and row."""
    return np.random.default_rng([seed, 5, step]).integers(1 << 32, size=(rows, 2), dtype=np.uint32)


def resolved_compute(spec: RunSpec, model: LanguageModel) -> Compute:
    """How a run is computed on this machine. Raises: ValueError if the spec is strict and something is unavailable."""
    return model.resolved(spec.compute, spec.context_len, segmented=not spec.cross_document_attention)


def compiled_step(
    spec: RunSpec,
    model: LanguageModel,
    layout: Layout | None = None,
    compute: Compute | None = None,
    objective: Objective | None = None,
) -> StepFunction:
    """Compile (state, batch, step) -> (state, metrics). The step donates the state it is called with.

    `compute` is the result of `resolved_compute`, if it is known already; `objective` is the spec's, unless another is given.
    With several devices, call the step inside `layout.pinned()` with arrays placed by the layout; the new state is placed
    likewise. Rows are split into microbatches and over the devices.

    A bad step leaves parameters, optimizer state and average unchanged, bit for bit. A step is bad if its loss or
    gradient norm is not finite, or if `skip_bad_steps` says so. That is enough: a finite norm means finite squares of
    all elements, so no moment and no direction can become infinite or NaN.
    """
    static = parted(model)[2]
    optimizer = build_optimizer(spec, model)
    spread = layout if layout is not None and layout.size > 1 else None
    how = compute or resolved_compute(spec, model)
    of_batch = objective or OBJECTIVES[type(spec.objective)](spec, how)

    dropout_seed = spec.seed if spec.adapter is not None and spec.adapter.dropout > 0 else None

    def of_parameters(parameters: PyTree, part: PyTree, router: PyTree, loads: Array | None) -> tuple[Array, Sums]:
        whole = joined(parameters, router, static)
        if dropout_seed is None:
            return of_batch(whole, part, loads)
        assert isinstance(whole, Adapted)
        batch, keys = part
        return of_batch(whole.dropping(keys), batch, loads)

    def step_fn(state: StepState, batch: PyTree, rate: Array) -> tuple[StepState, StepMetrics]:
        rows = jax.tree.leaves(batch)[0].shape[0]
        size = rows if spec.microbatch_size is None else spec.microbatch_size
        parts = jax.tree.map(lambda array: array.reshape(-1, size, *array.shape[1:]), batch)
        if spread is not None:  # every microbatch is split over all devices
            parts = jax.lax.with_sharding_constraint(parts, NamedSharding(spread.mesh, PartitionSpec(None, BATCH_AXES)))
        loads = None
        if reads_twice(spec) and rows > size:
            first_look = partial(of_parameters, state.parameters, router=state.router, loads=None)
            parts_routing = jax.lax.map(lambda part: first_look(part)[1].routing, parts)
            loads = None if parts_routing is None else load_shares(parts_routing.loads.sum(axis=0))
        of_part = partial(of_parameters, router=state.router, loads=loads)
        gradients, sums, squares = accumulated_gradients(of_part, state.parameters, parts, squares=spec.gradient_noise)
        loss, routing = sums.loss, sums.routing
        norm = optax.tree.norm(gradients)
        noise = None if squares is None else noise_terms(squares, sums.weight, norm, rows * spec.seq_len)
        directions, optimizer_state = optimizer.update(gradients, state.optimizer, state.parameters, rate=rate)
        watched = jnp.stack([norms(gradients), norms(state.parameters), rate * norms(directions)])
        ring = clip_ring(spec, optimizer_state)
        length = jnp.linalg.norm(norms(directions)) if ring is None else last_value(ring)
        moved = eqx.apply_updates(state.parameters, jax.tree.map(lambda direction: -rate * direction, directions))
        good, skip = jnp.isfinite(loss) & jnp.isfinite(norm), None
        if spec.skip_bad_steps is not None and state.skip is not None:
            good, skip = accept_step(spec.skip_bad_steps, state.skip, loss, norm)
        parameters = select(good, moved, state.parameters)
        ema = None
        if spec.ema is not None:
            ema = select(good, averaged(state.ema, parameters, spec.ema.beta), state.ema)
        router, watched_router = None, None
        if state.router is not None:
            router = select(good, balanced(spec.model, state.router, routing), state.router)
            watched_router = router_metrics(state.router, routing)
        in_a_row = jnp.int32(0) if skip is None else skip.in_a_row
        new = StepState(parameters, select(good, optimizer_state, state.optimizer), skip, ema, router)
        return new, StepMetrics(loss, rate, norm, ~good, in_a_row, length, watched, watched_router, sums.extras, noise)

    step_fn = jax.default_matmul_precision(how.precision)(step_fn)  # None: as before
    rates = learning_rates(spec.schedule, spec.num_steps)
    if spread is None:
        return StepFunction(jax.jit(step_fn, donate_argnums=0), rates, dropout_seed)
    shapes = eqx.filter_eval_shape(lambda m: initial_step_state(spec, m), model)
    everywhere = NamedSharding(spread.mesh, PartitionSpec())
    return StepFunction(
        jax.jit(step_fn, donate_argnums=0, out_shardings=(spread.shardings(shapes), everywhere)), rates, dropout_seed
    )


def reads_twice(spec: RunSpec) -> bool:
    """Whether a step of several microbatches needs the loads of all before the gradient of one."""
    return isinstance(spec.model, MoeConfig) and spec.model.router.balance_loss_weight > 0


def balanced(config: ModelConfig, router: PyTree, routing: Routing | None) -> PyTree:
    """The bias after a step that routed so."""
    if not isinstance(config, MoeConfig) or config.router.balance == "none" or routing is None:
        return router
    (old,) = jax.tree.leaves(router)
    new = balancing_bias(old.astype(jnp.float32), routing.margins, config.router.per_token)
    return jax.tree.map(lambda _: new.astype(old.dtype), router)


def router_metrics(router: PyTree, routing: Routing | None) -> RouterMetrics | None:
    if routing is None:
        return None
    (bias,) = jax.tree.leaves(router)
    return RouterMetrics(routing.loads, routing.dropped, jnp.linalg.norm(bias, axis=-1))


def accumulated_gradients[B](
    objective: Callable[[PyTree, B], tuple[Array, Sums]], parameters: PyTree, parts: B, *, squares: bool = False
) -> tuple[PyTree, Sums, PartSquares | None]:
    """(gradient of the objective, sums of the whole batch, squares) over microbatches [parts, ...], each by its weight.

    `objective(parameters, part)` returns (mean over what the part counts, its sums). The gradient is sum(w_i g_i) / sum(w_i),
    which is the whole batch's gradient however ragged the parts' masks are; a mean of means (Levanter issue 842) is not. Loss
    and extras are means likewise, routings are added. A part of weight 0 does not count, even if its mean is 0 / 0; if all
    weights are 0, all is 0. The squared norms of the gradients of the parts are None unless `squares` asks for them.
    """
    value_and_gradient = jax.value_and_grad(objective, has_aux=True)
    first = jax.tree.map(lambda part: part[0], parts)
    if jax.tree.leaves(parts)[0].shape[0] == 1:
        (_, sums), gradients = value_and_gradient(parameters, first)
        return gradients, sums, with_part(nothing_yet(), gradients, sums.weight) if squares else None

    def add(total: tuple[PyTree, Sums, PartSquares | None], part: B) -> tuple[tuple[PyTree, Sums, PartSquares | None], None]:
        (_, (loss, weight, routing, extras)), gradients = value_and_gradient(parameters, part)
        gradient_sum, sums, of_parts = total

        def weighted(sum_so_far: Array, mean: Array) -> Array:
            return sum_so_far + jnp.where(weight > 0, weight * mean, 0.0)

        added = Sums(
            weighted(sums.loss, loss),
            sums.weight + weight,
            jax.tree.map(jnp.add, sums.routing, routing),
            jax.tree.map(weighted, sums.extras, extras),
        )
        of_parts = None if of_parts is None else with_part(of_parts, gradients, weight)
        return (jax.tree.map(weighted, gradient_sum, gradients), added, of_parts), None

    shapes = jax.eval_shape(objective, parameters, first)[1]
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    begin = jax.tree.map(jnp.zeros_like, parameters), nothing, nothing_yet() if squares else None
    (gradient_sum, sums, of_parts), _ = jax.lax.scan(add, begin, parts)
    count = jnp.where(sums.weight > 0, sums.weight, 1.0)
    gradients, loss, extras = jax.tree.map(lambda total: total / count, (gradient_sum, sums.loss, sums.extras))
    return gradients, sums._replace(loss=loss, extras=extras), of_parts
