"""The loop: batches by index, one compiled step, metrics read late, checkpoints as artifacts, exact resume.

Resume needs no loader state, because the data order is a pure function of the step. The loss of a step is read from the
device a few steps later, so the host never waits for the step it has just started.
"""

import logging
import os
import statistics
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import numpy as np
import polars as pl

from lineage.config import from_jsonable
from lineage.jobs import Job
from lineage.measure import measuring
from lineage.order import DataOrder
from lineage.spec import ArtifactSpec
from lineage.store import Artifact
from trainer.checkpoint import METRICS_SCHEMA, TrainState, read_checkpoint, warm_start, write_checkpoint
from trainer.config import RunSpec
from trainer.model import Llama
from trainer.stage import CheckpointConfig, step_partition
from trainer.step import StepFunction, StepMetrics, StepState, compiled_step, initial_step_state

log = logging.getLogger("trainer")

READ_BEHIND = 8
"""Steps between starting a step and reading its loss."""
REPORT_SECONDS = 10.0
PREFETCH_BATCHES = 4
type _Batch = tuple[np.ndarray, np.ndarray | None]
"""Tokens [batch, sequence], and their weights in the loss where not every token counts."""


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
    start = _start_input(job, spec)
    _announce(spec, config.step)
    state, metrics = _start(job, config, start)
    meter = Throughput(spec)
    step_fn = compiled_step(spec, state.model)  # once: a new one at every save point would compile again
    with measuring() as cost:
        for target in _save_points(spec, state.step, config.step):
            state, rows = _run_to(target, spec, step_fn, order, state, meter)
            metrics = pl.concat([metrics, rows])
            target_spec = checkpoint_spec(job.spec, target)
            with job.writing(target_spec, cost) as out:
                write_checkpoint(out, spec, state, metrics, meter.summary(), start)
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
    fresh = initial_step_state(spec, model)
    return TrainState(model, fresh.optimizer, 0, fresh.skip, fresh.ema)


def _start_input(job: Job, spec: RunSpec) -> Artifact | None:
    """The checkpoint to start from. Raises: ValueError where the spec and the inputs disagree whether there is one."""
    given = job.inputs.get("start")
    if (given is None) != (spec.start is None):
        said = "sets start" if spec.start is not None else "sets no start"
        raise ValueError(f"run {spec.name} {said}, its inputs are {', '.join(job.inputs)}; give both or neither")
    assert given is None or isinstance(given, Artifact)
    return given


def _start(job: Job, config: CheckpointConfig, start: Artifact | None) -> tuple[TrainState, pl.DataFrame]:
    """The state of the last checkpoint of this run, else that of the run it starts from, else a fresh one."""
    state = initial_state(config.run)
    for step in sorted(_save_points(config.run, 0, config.step), reverse=True):
        found = job.store.find(checkpoint_spec(job.spec, step))
        if found is not None:
            log.info("resuming %s at step %d from %s", config.run.name, step, found.uri)
            return read_checkpoint(found, state)
    if start is not None and config.run.start is not None:
        state = warm_start(start, state, config.run)
        new = ", ".join(config.run.start.new_parameters) or "nothing"
        log.info("%s: warm start from %s, optimizer %s, new: %s", config.run.name, start.uri, config.run.start.optimizer, new)
    return state, pl.DataFrame(schema=METRICS_SCHEMA)


def _save_points(spec: RunSpec, after: int, last: int) -> list[int]:
    points = {*range(spec.save_every_steps, last + 1, spec.save_every_steps), last}
    return sorted(point for point in points if point > after)


def _run_to(
    target: int, spec: RunSpec, step_fn: StepFunction, order: DataOrder, state: TrainState, meter: "Throughput"
) -> tuple[TrainState, pl.DataFrame]:
    """Train from `state.step` to `target`; the new state and one row of metrics a step."""
    dynamic, static = eqx.partition(state.model, eqx.is_inexact_array)
    current = StepState(dynamic, state.optimizer, state.skip, state.ema)
    waiting: deque[tuple[int, StepMetrics]] = deque()
    rows: list[tuple] = []
    for step, (tokens, weights) in _batches(order, spec, state.step, target):
        current, read = step_fn(current, tokens, step, weights)
        waiting.append((step, read))
        if len(waiting) > READ_BEHIND:
            rows.append(_row(spec, *waiting.popleft()))
            meter.tick(rows[-1])
    while waiting:
        rows.append(_row(spec, *waiting.popleft()))
        meter.tick(rows[-1])
    trained = TrainState(eqx.combine(current.parameters, static), current.optimizer, target, current.skip, current.ema)
    return trained, pl.DataFrame(rows, schema=METRICS_SCHEMA, orient="row")


def _batches(order: DataOrder, spec: RunSpec, start: int, stop: int) -> Iterator[tuple[int, _Batch]]:
    """Batches in order, a few read ahead by a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        ahead: deque = deque()
        for step in range(start, stop + PREFETCH_BATCHES):
            if step < stop:
                ahead.append((step, pool.submit(_batch, order, spec, step)))
            if len(ahead) > PREFETCH_BATCHES or step >= stop:
                if not ahead:
                    return
                ready, future = ahead.popleft()
                yield ready, future.result()


def _batch(order: DataOrder, spec: RunSpec, step: int) -> _Batch:
    """Tokens that a step reads, and their weights in the loss where some component of the mixture has a mask."""
    first, size = spec.batches.first(step), spec.batches.size(step)
    tokens = order.batch(first, size)
    if not order.has_weights:
        return tokens, None
    weights = order.weights(first, size)
    if not weights[:, 1:].any():
        log.warning("%s: no token of step %d counts in the loss; it moves nothing but weight decay", spec.name, step)
    return tokens, weights


def _row(spec: RunSpec, step: int, read: StepMetrics) -> tuple:
    """One row of metrics; reading the loss waits for the step if it still runs.

    Raises: FloatingPointError on a bad loss, with `skip_bad_steps` only after too many bad steps in a row.
    """
    loss, rate, norm, skipped, in_a_row = (float(value) for value in read)
    if spec.skip_bad_steps is None:
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"run {spec.name}: the loss of step {step} is {loss}; its update was left out, the last checkpoint stands. "
                "Lower schedule.peak_learning_rate or optimizer.max_grad_norm, or set skip_bad_steps"
            )
    elif in_a_row > spec.skip_bad_steps.max_in_a_row:
        raise FloatingPointError(
            f"run {spec.name}: {in_a_row:.0f} steps in a row were skipped up to step {step} (loss {loss}, gradient norm "
            f"{norm}); skip_bad_steps.max_in_a_row allows {spec.skip_bad_steps.max_in_a_row}. The last checkpoint stands; "
            "lower schedule.peak_learning_rate or optimizer.max_grad_norm"
        )
    elif skipped:
        log.warning("%s: skipped step %d (loss %.4f, gradient norm %.4f)", spec.name, step, loss, norm)
    return step + 1, loss, rate, norm, bool(skipped), spec.tokens_before(step + 1)


@dataclass
class Throughput:
    """Step times and tokens of this process, compile time kept apart, and a line on the terminal every few seconds."""

    spec: RunSpec
    last: float = field(default_factory=time.perf_counter)
    spoken: float = 0.0
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Tokens of the step that took `seconds` of the same index."""
    first_seconds: float | None = None

    def tick(self, row: tuple) -> None:
        now = time.perf_counter()
        if self.first_seconds is None:
            self.first_seconds = now - self.last
        else:
            self.seconds.append(now - self.last)
            self.tokens.append(self.spec.step_tokens(row[0] - 1))
        self.last = now
        step, loss, rate = row[0], row[1], row[2]
        if now - self.spoken > REPORT_SECONDS or step == self.spec.num_steps:
            self.spoken = now
            left = (self.spec.num_steps - step) * self.step_seconds()
            log.info(
                "step %5d/%d  loss %.4f  lr %.2e  %7.0f tokens/s  %4.0f s left",
                step, self.spec.num_steps, loss, rate, self.tokens_per_second(100), left,
            )  # fmt: skip

    def step_seconds(self) -> float:
        return statistics.fmean(self.seconds[-100:]) if self.seconds else self.first_seconds or 0.0

    def tokens_per_second(self, recent: int | None = None) -> float:
        """Of the last `recent` steps, or of all; of the first, with its compilation, while there is no other."""
        count = len(self.seconds) if recent is None else min(recent, len(self.seconds))
        if not count:
            return self.spec.step_tokens(0) / self.first_seconds if self.first_seconds else 0.0
        return sum(self.tokens[-count:]) / max(sum(self.seconds[-count:]), 1e-9)

    def summary(self) -> dict[str, float]:
        mean = statistics.fmean(self.seconds) if self.seconds else self.first_seconds or 0.0
        speed = self.tokens_per_second()
        return {
            "tokens_per_second": round(speed, 1),
            "step_seconds_mean": round(mean, 5),
            "compile_seconds": round(self.first_seconds or 0.0, 3),
            "gflops_per_second": round(self.spec.model.training_flops_per_token(self.spec.seq_len) * speed / 1e9, 2),
        }


def _announce(spec: RunSpec, last: int) -> None:
    device = jax.devices()[0]
    log.info(
        "%s: %s parameters, %s tokens a step at first, to step %d, %.1f MFLOP a token, on %d x %s (%s)",
        spec.name, f"{spec.model.num_parameters:,}", f"{spec.step_tokens(0):,}", last,
        spec.model.training_flops_per_token(spec.seq_len) / 1e6, jax.device_count(), device.device_kind, device.platform,
    )  # fmt: skip
    log.info("%s: memory by GLIBC_TUNABLES %s", spec.name, os.environ.get("GLIBC_TUNABLES", "(not set)"))
