"""Train a run: batches by index, one compiled step, metrics read late, checkpoints as artifacts, exact resume.

Resume needs no loader state, because the data order is a pure function of the step.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import jax
from jaxtyping import PyTree

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.jobs.job import Job, job_folder
from lineage.order.order import DataOrder
from lineage.shards.measure import measuring
from trainer.checkpoint import TrainState
from trainer.determinism import note
from trainer.faults import inject_fault
from trainer.initial_state import log_first_sequence, start_input, starting_state
from trainer.loader import Loader, batch_of, batches_of, steps_at_once, whole
from trainer.meter import Throughput
from trainer.model.parts import joined, parted
from trainer.model.protocol import LanguageModel
from trainer.norms import norm_names
from trainer.pair_data import Reference, open_reference, pairs_of
from trainer.profiling import ProfilerWindow
from trainer.progress import LogLines, Show
from trainer.running import Running
from trainer.saving import PEER_SECONDS, Saver
from trainer.signals import Agreement, PreemptedError, Stop, StopRequest
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec
from trainer.spec.flops import Arithmetic, arithmetic
from trainer.spec.mesh import Layout
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import FORECAST, check_forecast
from trainer.step import StepState, compiled_step, resolved_compute
from trainer.step_results import StepResults
from trainer.tagged import Evaluation, read_evaluation
from trainer.tokenizer_check import check_same_tokenizer
from trainer.trackers import Trackers, open_trackers

log = logging.getLogger("trainer")

STALL_AT_START = 4
"""The first step may take this many times what another may: arrays are read and the step is compiled before it ends."""


def train(
    job: Job,
    running: Running | None = None,
    stop: Stop | None = None,
    watchdog: Callable[[float], None] = lambda seconds: None,
    show: Show | None = None,
) -> Artifact:
    """Run a job to its final checkpoint, from the last checkpoint that exists. Returns the final checkpoint.

    `watchdog(seconds)` is called again and again; its argument says how soon the next call comes unless something hangs.

    Raises: PreemptedError after `stop` was asked for and the state was saved.
    """
    running, stop, show = running or Running(), stop or Stop(), show or LogLines()
    watchdog(STALL_AT_START * running.stall_seconds)
    inputs = _open_inputs(job)
    layout = _open_layout(running, inputs.spec)
    meter = Throughput(inputs.spec, arithmetic(inputs.spec, running.peak_tflops), show)
    evaluation = read_evaluation(running.evaluation, inputs.spec.model.vocab_size)
    _announce(inputs.spec, inputs.last, layout, meter.arithmetic)
    with measuring() as cost:
        state, tables = starting_state(job, inputs.config, inputs.start, layout)
        compute = _resolve_compute(inputs.spec, state)
        saver = Saver(job, inputs.spec, layout, running, inputs.start, cost, _how(layout, compute))
        with _outputs(job, inputs.spec, running, saver) as trackers:
            alive = partial(watchdog, running.stall_seconds)
            names = norm_names(state.model)
            results = StepResults(inputs.spec, meter, trackers, names, running.watch_steps, alive, tables)
            begin = log_first_sequence(inputs.spec, inputs.start, inputs.mixture)
            _Loop(inputs, begin, layout, compute, running, stop, watchdog, saver, evaluation, results).run(state)
    return _committed(job, saver)


@dataclass(frozen=True)
class _Inputs:
    """What a job trains from."""

    config: CheckpointConfig
    mixture: Artifact
    order: DataOrder
    start: Artifact | None
    reference: Reference | None = None
    """What the reference gives each pair, for a run on preferences."""

    @property
    def spec(self) -> RunSpec:
        return self.config.run

    @property
    def last(self) -> int:
        """The step of the checkpoint that the job makes."""
        return self.config.step


def _open_inputs(job: Job) -> _Inputs:
    """Raises: ValueError where the mixture or the start does not fit the run."""
    config = from_jsonable(CheckpointConfig, job.spec.config)
    spec, mixture = config.run, job.inputs["mixture"]
    assert isinstance(mixture, Artifact)
    order = DataOrder.open(mixture, spec.seq_len)
    if order.vocab_size != spec.model.vocab_size:
        raise ValueError(
            f"run {spec.name}: model.vocab_size is {spec.model.vocab_size}, the mixture's caches have {order.vocab_size}"
        )
    start = start_input(job, spec)
    if start is not None:
        check_same_tokenizer(start, mixture, spec)
    forecast = job.inputs.get(FORECAST)
    if forecast is not None:
        assert isinstance(forecast, Artifact)
        check_forecast(forecast, spec, mixture, start)
    return _Inputs(config, mixture, order, start, open_reference(job.inputs, mixture, start, spec, order))


def _open_layout(running: Running, spec: RunSpec) -> Layout:
    """Raises: ValueError where the mesh cannot divide the run."""
    layout = Layout.of(running.mesh)
    layout.check(spec)
    return layout


def _resolve_compute(spec: RunSpec, state: TrainState) -> Compute:
    chosen = resolved_compute(spec, state.model)
    compute = replace(chosen, notes=(*chosen.notes, note(jax.default_backend(), os.environ)))
    log.info("%s: %s", spec.name, "; ".join(compute.notes))
    return compute


def _how(layout: Layout, compute: Compute) -> dict[str, Mapping]:
    """How the run is computed, for checkpoints and trackers."""
    return {"mesh": layout.to_record(), "compute": compute.record()}


@contextmanager
def _outputs(job: Job, spec: RunSpec, running: Running, saver: Saver) -> Iterator[Trackers]:
    """Trackers of this attempt; at the end all saves are finished first, because a tracker that fails must not hide one."""
    trackers = _trackers(job, spec, running, saver)
    try:
        yield trackers
    finally:
        try:
            saver.close()
        finally:
            trackers.finish()
            saver.records.publish()


def _trackers(job: Job, spec: RunSpec, running: Running, saver: Saver) -> Trackers:
    """Only the first process tracks."""
    if jax.process_index() > 0:
        return Trackers([])
    config = {**saver.how, "parameters": spec.model.num_parameters, "spec": to_jsonable(spec)}
    return open_trackers(running.trackers, job_folder(job), spec.name, job.spec.version, saver.attempt, config)


def _committed(job: Job, saver: Saver) -> Artifact:
    """The final checkpoint; rolling ones are deleted."""
    final = job.store.find(job.spec)
    if final is None:
        raise RuntimeError(f"{job.spec.name} was not committed")
    saver.forget_rolling()
    return final


@dataclass
class _Loop:
    """The steps of one attempt."""

    inputs: _Inputs
    begin: int
    """The global sequence that step 0 begins with."""
    layout: Layout
    compute: Compute
    running: Running
    stop: Stop
    watchdog: Callable[[float], None]
    saver: Saver
    evaluation: Evaluation | None
    results: StepResults

    def run(self, state: TrainState) -> None:
        """From a state to the last step, saving on the way. Raises: PreemptedError."""
        spec, last, results = self.inputs.spec, self.inputs.last, self.results
        dynamic, router, static = parted(state.model)
        biased = router if jax.tree.leaves(router) else None
        current = StepState(dynamic, state.optimizer, state.skip, state.ema, biased)
        step_fn = compiled_step(spec, state.model, self.layout, self.compute)
        agreement = Agreement(self.layout)
        kept = {*spec.saved_steps(last)}
        loader = self._loader()
        results.meter.begin()
        with ProfilerWindow(self.running.profile, self.saver.job, state.step, last) as window:
            for step, batch in loader.batches(state.step, last):
                results.meter.stalled = loader.stalled
                inject_fault(self.running.faults, "step", step)
                window.at(step, current)
                with self.layout.pinned():
                    current, metrics = step_fn(current, batch, step)
                results.started(step, metrics, agreement.of(self._request()))
                self.saver.check()
                done = step + 1
                if self.evaluation is not None and self.evaluation.is_due(done, last):
                    self._evaluate(self.evaluation, current, static, done)
                if done not in kept:
                    results.read_in_flight()
                if done in kept or results.request.save or self._leaves():
                    results.read_down_to(0)
                    self._save(current, static, done, rolling=done not in kept)
                    if self._leaves() and done != last:
                        self._leave(done)
                    results.clear_request()

    def _loader(self) -> Loader:
        """One device reads several steps at once; of several devices, each process reads its own rows of one step."""
        order, spec, reference = self.inputs.order, self.inputs.spec, self.inputs.reference
        if reference is not None:
            place = whole if self.layout.size == 1 else self.layout.rows
            pairs = partial(pairs_of, order, spec, reference, place=place, begin=self.begin)
            return Loader(lambda step, count: [pairs(step=step + i) for i in range(count)])
        if self.layout.size == 1:
            return Loader(partial(batches_of, order, spec, begin=self.begin), at_once=steps_at_once(spec))
        read = partial(batch_of, order, spec, place=self.layout.rows, begin=self.begin)
        return Loader(lambda step, count: [read(step=step + i) for i in range(count)])

    def _request(self) -> StopRequest:
        """What this process asks for at this step."""
        return StopRequest(int(self.stop.requested.is_set()), int(self.saver.rolling_is_due()), self.results.own_hurry())

    def _leaves(self) -> bool:
        """True once all processes agreed to stop; a single process stops at once."""
        return bool(self.results.request.leave) or (jax.process_count() == 1 and self.stop.requested.is_set())

    def _leave(self, done: int) -> None:
        self.saver.wait()
        raise PreemptedError(f"{self.inputs.spec.name}: asked to leave; checkpoint saved at step {done}, resume from there")

    def _evaluate(self, evaluation: Evaluation, state: StepState, static: PyTree, done: int) -> None:
        """Score held-out texts and log the scores to the trackers. The time counts for no step."""
        self.results.read_down_to(0)
        began = time.perf_counter()
        weights = {"raw": state.parameters, **({} if state.ema is None else {"ema": state.ema})}
        spread = None if self.layout.size == 1 else self.layout
        models: dict[str, LanguageModel] = {
            name: cast(LanguageModel, joined(tree, state.router, static)) for name, tree in weights.items()
        }
        self.results.trackers.log(done, evaluation.values(models, self.inputs.spec.model, done, spread))
        self.results.meter.leave_out(time.perf_counter() - began)

    def _save(self, state: StepState, static: PyTree, done: int, *, rolling: bool) -> None:
        reached = TrainState(joined(state.parameters, state.router, static), state.optimizer, done, state.skip, state.ema)
        tables = self.results.tables()
        # It waits for the save before it, which may wait for another process.
        self.watchdog(self.running.stall_seconds + PEER_SECONDS)
        self.saver.save(reached, tables, self.results.meter.summary(), rolling=rolling)


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
