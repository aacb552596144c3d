"""The host does not wait for a step or save it has just started, shown by the order of events."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import RUN, SHORT, at_step, job_of

import trainer.saving
import trainer.step_results
import trainer.train
from trainer.running import Running
from trainer.step import StepMetrics
from trainer.step_results import READ_BEHIND
from trainer.train import train

UNDISTURBED = Running(rolling_seconds=1e9)
"""No rolling checkpoint, for which everything is read, however long the machine pauses."""


class Watched:
    """A value on the device that reports when it is read."""

    def __init__(self, value: jax.Array, on_read: Callable[[], None]):
        self.value, self.on_read = value, on_read

    def __float__(self) -> float:
        self.on_read()
        return float(self.value)

    def __array__(self, *given: object, **named: object) -> np.ndarray:
        self.on_read()
        return np.asarray(self.value)

    def __getitem__(self, index: int) -> np.ndarray:
        self.on_read()
        return np.asarray(self.value[index])

    def block_until_ready(self) -> "Watched":
        self.on_read()
        return self


def watch(monkeypatch: pytest.MonkeyPatch, started: Callable[[int], None], read: Callable[[int], None]) -> None:
    """Have every step tell when it is started, and when the host first reads or waits for anything of it."""
    real = trainer.train.compiled_step
    newest = [-1]

    def compiled(*arguments: object) -> Callable:
        step_fn = real(*arguments)

        def step(state: object, tokens: object, number: int, *rest: object) -> tuple:
            started(number)
            newest[0] = number
            new, metrics = step_fn(state, tokens, number, *rest)
            return new, StepMetrics(*(None if value is None else Watched(value, lambda: read(number)) for value in metrics))

        return step

    for name in ("block_until_ready", "device_get"):
        waits = getattr(jax, name)
        monkeypatch.setattr(jax, name, lambda tree, waits=waits: (read(newest[0]), waits(tree))[1])
    monkeypatch.setattr(trainer.train, "compiled_step", compiled)
    monkeypatch.setattr(trainer.step_results, "steps_ahead", lambda seconds: READ_BEHIND)  # however slow this machine is


def test_metrics_are_read_steps_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A synchronization in the loop would have a step read before the next one starts."""
    begun: list[int] = []
    behind: dict[int, int] = {}
    watch(monkeypatch, begun.append, lambda step: behind.setdefault(step, begun[-1] - step))
    train(job_of(tmp_path, RUN), UNDISTURBED)
    assert begun == list(range(RUN.num_steps)) and sorted(behind) == begun
    steady = [behind[step] for step in range(READ_BEHIND, RUN.num_steps - READ_BEHIND)]
    assert steady == [READ_BEHIND] * len(steady)


def test_steps_go_on_while_a_save_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The writer of step 5 waits until step 8 has started: were the loop to wait for the writer, that would never be."""
    went_on = threading.Event()
    watch(monkeypatch, lambda step: went_on.set() if step == 8 else None, lambda step: None)
    real, waited = trainer.saving.write_checkpoint, []

    def write(out: object, spec: object, state: trainer.saving.Snapshot, *rest: object) -> None:
        if state.step == 5:
            assert threading.current_thread() is not threading.main_thread(), "the loop itself writes"
            waited.append(went_on.wait(600))
        real(out, spec, state, *rest)  # pyrefly: ignore

    monkeypatch.setattr(trainer.saving, "write_checkpoint", write)
    job = job_of(tmp_path, replace(SHORT, keep_steps=(5,)))
    train(job, UNDISTURBED)
    assert waited == [True], "no step started while the save was being written"
    assert at_step(job, 5) is not None
