"""The loop: batches by index, one compiled step, metrics read late, checkpoints as artifacts, exact resume.

Resume needs no loader state, because the data order is a pure function of the step. The loss of a step is read from the
device a few steps later, so the host never waits for the step it has just started.
"""

import logging
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import equinox as eqx
import jax
import polars as pl
from jaxtyping import PyTree

from lineage.config import from_jsonable, to_jsonable
from lineage.jobs import Job, job_folder
from lineage.measure import measuring
from lineage.order import DataOrder
from lineage.store import Artifact
from trainer.checkpoint import METRICS_SCHEMA, TrainState
from trainer.compute import Compute
from trainer.config import RunSpec
from trainer.determinism import note
from trainer.faults import strike
from trainer.flops import Arithmetic, arithmetic
from trainer.loader import Loader, batch_of, batches_of, steps_at_once
from trainer.mesh import Layout
from trainer.meter import Throughput, row_of, values_of
from trainer.norms import norm_names
from trainer.profiling import ProfilerWindow
from trainer.progress import LogLines, Show
from trainer.running import Running
from trainer.same_tokens import check_same_tokenizer
from trainer.saving import PEER_SECONDS, Saver
from trainer.signals import Agreement, PreemptedError, Stop, Wish, either, read_wish
from trainer.stage import CheckpointConfig
from trainer.starting import start_input, starting_state, told_first_sequence
from trainer.step import StepMetrics, StepState, compiled_step, resolved_compute
from trainer.tagged import Evaluation, read_evaluation
from trainer.trackers import Trackers, open_trackers

log = logging.getLogger("trainer")

READ_BEHIND = 8
"""Steps between starting a step and reading its loss, at most."""
STALL_AT_START = 4
"""Times what a step may take: arrays are read and the step is compiled first."""
READ_SECONDS = 2.0
"""And no more than take so long together: what was started must end before a run that is asked to leave can save."""


def train(
    job: Job,
    running: Running | None = None,
    stop: Stop | None = None,
    watchdog: Callable[[float], None] = lambda seconds: None,
    show: Show | None = None,
) -> Artifact:
    """Run a job to its final checkpoint, from the last one that exists; the final checkpoint.

    `watchdog` is told again and again how soon it will be told again, unless something hangs.

    Raises: PreemptedError when `stop` was asked; what had been done is saved.
    """
    running, stop, show = running or Running(), stop or Stop(), show or LogLines()
    watchdog(STALL_AT_START * running.stall_seconds)
    config = from_jsonable(CheckpointConfig, job.spec.config)
    spec = config.run
    mixture = job.inputs["mixture"]
    assert isinstance(mixture, Artifact)
    order = DataOrder.open(mixture, spec.seq_len)
    if order.vocab_size != spec.model.vocab_size:
        raise ValueError(
            f"run {spec.name}: model.vocab_size is {spec.model.vocab_size}, the mixture's caches have {order.vocab_size}"
        )
    start = start_input(job, spec)
    if start is not None:
        check_same_tokenizer(start, mixture, spec)
    layout = Layout.of(running.mesh)
    layout.check(spec)
    meter = Throughput(spec, arithmetic(spec, running.peak_tflops), show)
    evaluation = read_evaluation(running.evaluation, spec.model.vocab_size)
    _announce(spec, config.step, layout, meter.arithmetic)
    with measuring() as cost:
        state, metrics = starting_state(job, config, start, layout)
        chosen = resolved_compute(spec, state.model)
        compute = replace(chosen, notes=(*chosen.notes, note(jax.default_backend(), os.environ)))
        log.info("%s: %s", spec.name, "; ".join(compute.notes))
        how = {"mesh": layout.to_record(), "compute": compute.record()}
        saver = Saver(job, spec, layout, running, start, cost, how)
        trackers = _trackers(job, spec, running, saver.attempt, how)
        told = {"saver": saver, "trackers": trackers, "meter": meter, "evaluation": evaluation}
        begin = told_first_sequence(spec, start, mixture)
        loop = _Loop(
            spec, begin, layout, compute, running, stop, watchdog, **told, metrics=metrics, weights=norm_names(state.model)
        )
        try:
            loop.run(state, order, config.step)
        finally:
            try:
                saver.close()  # first: what a tracker does at the end must not hide a save that failed
            finally:
                trackers.finish()
                saver.records.publish()
    final = job.store.find(job.spec)
    if final is None:
        raise RuntimeError(f"{job.spec.name} was not committed")
    saver.forget_rolling()
    return final


def steps_ahead(seconds: Sequence[float]) -> int:
    """How many steps may be on their way when the next one is started, by the times of those that were read.

    None before two are known, nor where one alone takes too long: SIGTERM is obeyed at the end of the step that runs then.
    """
    if len(seconds) < 2:
        return 0
    return min(READ_BEHIND, int(READ_SECONDS / max(statistics.fmean(seconds[-100:]), 1e-9)))


def _trackers(job: Job, spec: RunSpec, running: Running, attempt: str, how: Mapping[str, Mapping]) -> Trackers:
    """Of this attempt; only the first process tells anybody."""
    if jax.process_index() > 0:
        return Trackers([])
    config = {**how, "parameters": spec.model.num_parameters, "spec": to_jsonable(spec)}
    return open_trackers(running.trackers, job_folder(job), spec.name, job.spec.version, attempt, config)


@dataclass
class _Loop:
    """Steps of one attempt, what of them is still to be read, and what has been."""

    spec: RunSpec
    begin: int
    """The global sequence that step 0 begins with."""
    layout: Layout
    compute: Compute
    running: Running
    stop: Stop
    watchdog: Callable[[float], None]
    saver: Saver
    trackers: Trackers
    meter: Throughput
    evaluation: Evaluation | None
    metrics: pl.DataFrame
    weights: tuple[str, ...]
    """Names of the norms."""
    waiting: deque[tuple[int, StepMetrics, Wish | jax.Array]] = field(default_factory=deque)
    rows: list[tuple] = field(default_factory=list)
    wish: Wish = field(default_factory=lambda: Wish(hurry=READ_BEHIND))

    def run(self, state: TrainState, order: DataOrder, last: int) -> None:
        """From a state to the last step, saving on the way. Raises: PreemptedError."""
        dynamic, static = eqx.partition(state.model, eqx.is_inexact_array)
        current = StepState(dynamic, state.optimizer, state.skip, state.ema)
        step_fn = compiled_step(self.spec, state.model, self.layout, self.compute)
        agreement = Agreement(self.layout)
        kept = {*self.spec.saved_steps(last)}
        loader = self._loader(order)
        self.meter.begin()
        with ProfilerWindow(self.running.profile, self.saver.job, state.step, last) as window:
            for step, batch in loader.batches(state.step, last):
                self.meter.stalled = loader.stalled
                strike(self.running.faults, "step", step)
                window.at(step, current)
                with self.layout.pinned():
                    current, read = step_fn(current, batch.tokens, step, batch.weights, batch.segment_ids)
                self.waiting.append((step, read, agreement.of(self._wish())))
                self.saver.check()
                done = step + 1
                if self.evaluation is not None and self.evaluation.is_due(done, last):
                    self._evaluate(self.evaluation, current, static, done)
                self._read_down_to(0 if done in kept else READ_BEHIND - self.wish.hurry)
                if done in kept or self.wish.save or self._leaves():
                    self._read_down_to(0)
                    reached = TrainState(
                        eqx.combine(current.parameters, static), current.optimizer, done, current.skip, current.ema
                    )
                    self._save(reached, rolling=done not in kept)
                    if self._leaves() and done != last:
                        self.saver.wait()
                        raise PreemptedError(
                            f"{self.spec.name}: asked to leave; checkpoint saved at step {done}, go on from there"
                        )
                    self.wish = Wish(hurry=self.wish.hurry)

    def _leaves(self) -> bool:
        """Whether all leave now. A lone process need not wait until its wish has come back with a step."""
        return bool(self.wish.leave) or (jax.process_count() == 1 and self.stop.asked.is_set())

    def _loader(self, order: DataOrder) -> Loader:
        """Of several steps at once for one device; over several, each process reads its own rows of a step."""
        if self.layout.size == 1:
            return Loader(partial(batches_of, order, self.spec, begin=self.begin), at_once=steps_at_once(self.spec))
        read = partial(batch_of, order, self.spec, place=self.layout.rows, begin=self.begin)
        return Loader(lambda step, count: [read(step=step + i) for i in range(count)])

    def _wish(self) -> Wish:
        """What this process asks for at this step."""
        hurry = READ_BEHIND - steps_ahead(self.meter.seconds)
        return Wish(int(self.stop.asked.is_set()), int(self.saver.rolling_is_due()), hurry)

    def _read_down_to(self, count: int) -> None:
        """Read the metrics of all but the newest steps."""
        while len(self.waiting) > count:
            step, read, agreed = self.waiting.popleft()
            self.rows.append(row_of(self.spec, step, read))
            self.watchdog(self.running.stall_seconds)
            self.meter.tick(self.rows[-1])
            watched = (step + 1) % self.running.watch_steps == 0 or step + 1 == self.spec.num_steps
            self.trackers.log(step + 1, values_of(self.rows[-1], read, self.meter, self.weights if watched else None))
            wish = read_wish(agreed)
            self.wish = either((self.wish._replace(hurry=0), wish))

    def _evaluate(self, evaluation: Evaluation, state: StepState, static: PyTree, done: int) -> None:
        """Tell the trackers what held-out texts cost after a step. Its time is no step's."""
        self._read_down_to(0)
        began = time.perf_counter()
        weights = {"raw": state.parameters, **({} if state.ema is None else {"ema": state.ema})}
        spread = None if self.layout.size == 1 else self.layout
        models = {name: eqx.combine(tree, static) for name, tree in weights.items()}
        self.trackers.log(done, evaluation.values(models, self.spec.model.max_seq_len, done, spread))
        self.meter.leave_out(time.perf_counter() - began)

    def _save(self, state: TrainState, *, rolling: bool) -> None:
        new = pl.DataFrame(self.rows, schema=METRICS_SCHEMA, orient="row")
        self.metrics, self.rows = pl.concat([self.metrics, new]), []
        self.watchdog(self.running.stall_seconds + PEER_SECONDS)  # it waits for the save before, which may wait for a peer
        self.saver.save(state, self.metrics, self.meter.summary(), rolling=rolling)


def _announce(spec: RunSpec, last: int, layout: Layout, arithmetic: Arithmetic) -> None:
    device = jax.devices()[0]
    log.info(
        "%s: %s parameters, %s tokens a step at first, to step %d, on %d x %s (%s) as %s",
        spec.name, f"{spec.model.num_parameters:,}", f"{spec.step_tokens(0):,}", last,
        jax.device_count(), device.device_kind, device.platform, layout.describe(),
    )  # fmt: skip
    log.info("%s: %s", spec.name, arithmetic.describe())
    for what, name in (("memory", "GLIBC_TUNABLES"), ("programs", "XLA_FLAGS")):
        log.info("%s: %s by %s %s", spec.name, what, name, os.environ.get(name, "(not set)"))
