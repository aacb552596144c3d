"""A profiler trace of a few steps, for TensorBoard's profile plugin or Perfetto."""

import logging
from dataclasses import dataclass
from types import TracebackType

import jax
from jaxtyping import PyTree

from lineage.jobs import Job, job_folder

log = logging.getLogger("trainer")


@dataclass
class ProfilerWindow:
    """Traces steps [first, first + count) of `(first, count)` into the job's folder; None: nothing.

    Of the steps [start, stop) of an attempt, those in the window are traced; where there are none, that is said at once.
    Used as a context, which ends a trace that the steps did not.
    """

    window: tuple[int, int] | None
    job: Job
    start: int
    stop: int
    traced: range | None = None
    """Steps of the trace that runs, so far."""

    def __enter__(self) -> "ProfilerWindow":
        if self.window is not None and not self._steps():
            first, count = self.window
            log.warning(
                "MARIN_PROFILE asks for steps %d to %d, this attempt takes steps %d to %d: nothing is traced",
                first, first + count - 1, self.start, self.stop - 1,
            )  # fmt: skip
        return self

    def at(self, step: int, state: PyTree) -> None:
        """Called before every step with the state that it starts from, which is waited for at both ends."""
        steps = self._steps()
        if self.traced is None and step in steps:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(job_folder(self.job) / "profile"))
            self.traced = range(step, step)
        if self.traced is not None and step in steps:
            self.traced = range(self.traced.start, step + 1)
        elif self.traced is not None:
            jax.block_until_ready(state)
            self._end(self.traced)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self.traced is not None:
            self._end(self.traced)

    def _steps(self) -> range:
        first, count = self.window or (0, 0)
        return range(max(first, self.start), min(first + count, self.stop))

    def _end(self, traced: range) -> None:
        jax.profiler.stop_trace()
        self.traced = None
        log.info("profile of steps %d to %d below %s", traced.start, traced.stop - 1, job_folder(self.job) / "profile")
