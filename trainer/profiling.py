"""A profiler trace of a few steps, for TensorBoard's profile plugin or Perfetto."""

import logging
from dataclasses import dataclass
from types import TracebackType

import jax
from jaxtyping import PyTree

from lineage.jobs.job import Job, job_folder

log = logging.getLogger("trainer")


@dataclass
class ProfilerWindow:
    """Traces the steps [first, first + count) of `window = (first, count)` into the job's folder; None: no trace.

    An attempt takes the steps [start, stop); if none of them is in the window, a warning says so at once. Use it as a context
    manager: leaving it ends a running trace.
    """

    window: tuple[int, int] | None
    job: Job
    start: int
    stop: int
    traced: range | None = None
    """Steps of the running trace so far; None: no trace runs."""

    def __enter__(self) -> "ProfilerWindow":
        if self.window is not None and not self._steps():
            first, count = self.window
            log.warning(
                "MARIN_PROFILE asks for steps %d to %d, this attempt takes steps %d to %d; nothing is traced",
                first, first + count - 1, self.start, self.stop - 1,
            )  # fmt: skip
        return self

    def at(self, step: int, state: PyTree) -> None:
        """Call it before every step with the state that the step starts from. The trace waits for that state at both ends."""
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
