"""The loop: batches by index, one compiled step, metrics read late, checkpoints as artifacts, exact resume.

Resume needs no loader state, because the data order is a pure function of the step. The loss of a step is read from the
device a few steps later, so the host never waits for the step it has just started.
"""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
from jaxtyping import PyTree

from lineage.config import from_jsonable
from lineage.jobs import Job
from lineage.measure import measuring
from lineage.order import DataOrder
from lineage.spec import ArtifactSpec
from lineage.store import Artifact
from trainer.checkpoint import METRICS_SCHEMA, TrainState, read_checkpoint, write_checkpoint
from trainer.config import RunSpec
from trainer.model import Llama, loss_fn
from trainer.optimizer import all_finite, build_optimizer, keep_if, learning_rate
from trainer.stage import CheckpointConfig, step_partition

log = logging.getLogger("trainer")

READ_BEHIND = 8
"""Steps between starting a step and reading its loss."""
REPORT_SECONDS = 10.0
PREFETCH_BATCHES = 4


def train(job: Job) -> Artifact:
    """Run a job to its final checkpoint, from the last one that exists; the final checkpoint."""
    config = from_jsonable(CheckpointConfig, job.spec.config)
    spec = config.run
    mixture = job.inputs["mixture"]
    assert isinstance(mixture, Artifact)
    order = DataOrder.open(mixture, spec.seq_len)
    if order.vocab_size != spec.model.vocab_size:
        raise ValueError(
            f"run {spec.name}: model.vocab_size is {spec.model.vocab_size}, the mixture's caches have {order.vocab_size}"
        )
    _announce(spec, config.step)
    state, metrics = _start(job, config)
    optimizer = build_optimizer(spec, state.model)
    meter = Throughput(spec)
    with measuring() as cost:
        for target in _save_points(spec, state.step, config.step):
            state, rows = _run_to(target, spec, optimizer, order, state, meter)
            metrics = pl.concat([metrics, rows])
            target_spec = checkpoint_spec(job.spec, target)
            with job.store.writing(target_spec, job.code_fingerprint, job.run_id, cost) as out:
                write_checkpoint(out, spec, state, metrics, meter.summary())
            log.info("saved step %d: %s", target, out.artifact.uri)
    final = job.store.find(job.spec)
    if final is None:
        raise RuntimeError(f"{job.spec.name} was not committed")
    return final


def checkpoint_spec(final: ArtifactSpec, step: int) -> ArtifactSpec:
    """Identity of an earlier checkpoint of the same run; its partition follows the step unless the final's is no step."""
    by_step = final.partition == step_partition(int(final.config["step"]))
    return replace(
        final,
        partition=step_partition(step) if by_step else final.partition,
        config={**final.config, "step": step},
    )


def initial_state(spec: RunSpec) -> TrainState:
    """Fresh parameters and optimizer state, a function of the spec alone."""
    model = Llama.init(spec.model, key=jax.random.PRNGKey(spec.seed))
    optimizer = build_optimizer(spec, model)
    return TrainState(model, optimizer.init(eqx.filter(model, eqx.is_inexact_array)), 0)


def _start(job: Job, config: CheckpointConfig) -> tuple[TrainState, pl.DataFrame]:
    state = initial_state(config.run)
    for step in sorted(_save_points(config.run, 0, config.step), reverse=True):
        found = job.store.find(checkpoint_spec(job.spec, step))
        if found is not None:
            log.info("resuming %s at step %d from %s", config.run.name, step, found.uri)
            return read_checkpoint(found, state)
    return state, pl.DataFrame(schema=METRICS_SCHEMA)


def _save_points(spec: RunSpec, after: int, last: int) -> list[int]:
    points = {*range(spec.save_every_steps, last + 1, spec.save_every_steps), last}
    return sorted(point for point in points if point > after)


def _run_to(
    target: int,
    spec: RunSpec,
    optimizer: optax.GradientTransformation,
    order: DataOrder,
    state: TrainState,
    meter: "Throughput",
) -> tuple[TrainState, pl.DataFrame]:
    """Train from `state.step` to `target`; the new state and one row of metrics a step."""
    dynamic, static = eqx.partition(state.model, eqx.is_inexact_array)
    step_fn = compiled_step(spec, optimizer, static)
    optimizer_state = state.optimizer
    waiting: deque[tuple[int, tuple[jax.Array, ...]]] = deque()
    rows: list[tuple] = []
    for step, tokens in _batches(order, spec, state.step, target):
        dynamic, optimizer_state, read = step_fn(dynamic, optimizer_state, tokens, step)
        waiting.append((step, read))
        if len(waiting) > READ_BEHIND:
            rows.append(_row(spec, *waiting.popleft()))
            meter.tick(rows[-1])
    while waiting:
        rows.append(_row(spec, *waiting.popleft()))
        meter.tick(rows[-1])
    return TrainState(eqx.combine(dynamic, static), optimizer_state, target), pl.DataFrame(
        rows, schema=METRICS_SCHEMA, orient="row"
    )


def compiled_step(spec: RunSpec, optimizer: optax.GradientTransformation, static: PyTree) -> Callable:
    """One training step, its state donated: (parameters, optimizer state, tokens, step) -> (the same two, metrics)."""

    def step_fn(dynamic: PyTree, optimizer_state: PyTree, tokens: jax.Array, step: jax.Array):
        def objective(parameters: PyTree) -> tuple[jax.Array, jax.Array]:
            return loss_fn(eqx.combine(parameters, static), tokens, spec.z_loss_weight)

        (_, loss), gradients = jax.value_and_grad(objective, has_aux=True)(dynamic)
        rate = learning_rate(spec.schedule, spec.num_steps, step)
        updates, new_state = optimizer.update(gradients, optimizer_state, dynamic)
        moved = eqx.apply_updates(dynamic, jax.tree.map(lambda update: -rate * update, updates))
        good = jnp.isfinite(loss) & all_finite(gradients)
        read = (loss, rate, optax.tree.norm(gradients), ~good)
        return keep_if(good, moved, dynamic), keep_if(good, new_state, optimizer_state), read

    return jax.jit(step_fn, donate_argnums=(0, 1))


def _batches(order: DataOrder, spec: RunSpec, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
    """Batches in order, a few read ahead by a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        ahead: deque = deque()
        for step in range(start, stop + PREFETCH_BATCHES):
            if step < stop:
                ahead.append((step, pool.submit(order.batch, step * spec.batch_size, spec.batch_size)))
            if len(ahead) > PREFETCH_BATCHES or step >= stop:
                if not ahead:
                    return
                ready, future = ahead.popleft()
                yield ready, future.result()


def _row(spec: RunSpec, step: int, read: tuple[jax.Array, ...]) -> tuple:
    """One row of metrics; reading the loss waits for the step if it still runs. Raises FloatingPointError on a bad loss."""
    loss, rate, norm, skipped = (float(value) for value in read)
    if not np.isfinite(loss):
        raise FloatingPointError(
            f"run {spec.name}: the loss of step {step} is {loss}; its update was left out, the last checkpoint stands. "
            "Lower schedule.peak_learning_rate or optimizer.max_grad_norm"
        )
    return step + 1, loss, rate, norm, bool(skipped), (step + 1) * spec.batch_tokens


@dataclass
class Throughput:
    """Step times of this process, compile time kept apart, and a line on the terminal every few seconds."""

    spec: RunSpec
    last: float = field(default_factory=time.perf_counter)
    spoken: float = 0.0
    seconds: list[float] = field(default_factory=list)
    first_seconds: float | None = None

    def tick(self, row: tuple) -> None:
        now = time.perf_counter()
        if self.first_seconds is None:
            self.first_seconds = now - self.last
        else:
            self.seconds.append(now - self.last)
        self.last = now
        step, loss, rate = row[0], row[1], row[2]
        if now - self.spoken > REPORT_SECONDS or step == self.spec.num_steps:
            self.spoken = now
            left = (self.spec.num_steps - step) * self.step_seconds()
            log.info(
                "step %5d/%d  loss %.4f  lr %.2e  %7.0f tokens/s  %4.0f s left",
                step, self.spec.num_steps, loss, rate, self.spec.batch_tokens / max(self.step_seconds(), 1e-9), left,
            )  # fmt: skip

    def step_seconds(self) -> float:
        return statistics.fmean(self.seconds[-100:]) if self.seconds else self.first_seconds or 0.0

    def summary(self) -> dict[str, float]:
        mean = statistics.fmean(self.seconds) if self.seconds else self.first_seconds or 0.0
        flops = self.spec.model.training_flops_per_token(self.spec.seq_len) * self.spec.batch_tokens
        return {
            "tokens_per_second": round(self.spec.batch_tokens / mean, 1) if mean else 0.0,
            "step_seconds_mean": round(mean, 5),
            "compile_seconds": round(self.first_seconds or 0.0, 3),
            "gflops_per_second": round(flops / mean / 1e9, 2) if mean else 0.0,
        }


def _announce(spec: RunSpec, last: int) -> None:
    device = jax.devices()[0]
    log.info(
        "%s: %s parameters, %s tokens a step to step %d, %.1f MFLOP a token, on %d x %s (%s)",
        spec.name, f"{spec.model.num_parameters:,}", f"{spec.batch_tokens:,}", last,
        spec.model.training_flops_per_token(spec.seq_len) / 1e6, jax.device_count(), device.device_kind, device.platform,
    )  # fmt: skip
