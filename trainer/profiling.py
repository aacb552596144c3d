"""A profiler trace of a few steps, for TensorBoard's profile plugin or Perfetto."""

import logging
from dataclasses import dataclass

import jax
from jaxtyping import PyTree

from lineage.jobs import Job, job_folder

log = logging.getLogger("trainer")


@dataclass
class ProfilerWindow:
    """Traces steps [first, first + count) of `(first, count)` into the job's folder; None: nothing."""

    window: tuple[int, int] | None
    job: Job
    tracing: bool = False

    def at(self, step: int, state: PyTree) -> None:
        """Called before every step with the state that it starts from, which is waited for at both ends."""
        if self.window is None:
            return
        first, count = self.window
        if step == first:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(job_folder(self.job) / "profile"))
            self.tracing = True
        elif step == first + count and self.tracing:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self.tracing = False
            log.info("profile of steps %d to %d below %s", first, step - 1, job_folder(self.job) / "profile")
