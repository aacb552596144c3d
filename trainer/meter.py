"""Turn the metrics of a step into a row, and measure throughput."""

import logging
import os
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from lineage.messages import Progress
from trainer.progress import LogLines, Show, StepReport
from trainer.spec.config import RunSpec
from trainer.spec.flops import Arithmetic
from trainer.step import StepMetrics

log = logging.getLogger("trainer")


def row_of(spec: RunSpec, step: int, read: StepMetrics) -> tuple:
    """One row of the metrics table. Reading the loss waits for the step if it still runs.

    Raises: FloatingPointError for a loss or a gradient norm that is not finite; with `skip_bad_steps`, only after too many bad
    steps in a row.
    """
    loss, rate, norm, skipped, in_a_row, direction = (float(value) for value in read[:6])
    if spec.skip_bad_steps is None:
        if skipped:
            raise FloatingPointError(
                f"run {spec.name}: step {step} has loss {loss} and gradient norm {norm}; its update was left out and the "
                "last checkpoint is valid. Lower schedule.peak_learning_rate or optimizer.max_grad_norm, or set skip_bad_steps"
            )
    elif in_a_row > spec.skip_bad_steps.max_in_a_row:
        raise FloatingPointError(
            f"run {spec.name}: {in_a_row:.0f} steps in a row were skipped up to step {step} (loss {loss}, gradient norm "
            f"{norm}); skip_bad_steps.max_in_a_row allows {spec.skip_bad_steps.max_in_a_row}. The last checkpoint is valid; "
            "lower schedule.peak_learning_rate or optimizer.max_grad_norm"
        )
    elif skipped:
        log.warning("%s: skipped step %d (loss %.4f, gradient norm %.4f)", spec.name, step, loss, norm)
    if loss == 0 and norm == 0:
        log.warning("%s: no token of step %d counts in the loss; only weight decay changes the parameters", spec.name, step)
    update = float(np.sqrt(np.square(np.asarray(read.norms[2], np.float64)).sum()))
    return step + 1, loss, rate, norm, bool(skipped), spec.tokens_before(step + 1), update, direction


NORMS = ("grad", "params", "updates")


def values_of(row: tuple, read: StepMetrics, meter: "Throughput", names: Sequence[str] | None) -> dict[str, float]:
    """Values of a step for trackers; with `names`, also the norms of every weight."""
    _, loss, rate, _, skipped, tokens, _, direction = row
    norms = np.asarray(read.norms, np.float64)
    speed = meter.tokens_per_second(1)
    values = {
        "train/loss": loss,
        "train/tokens": float(tokens),
        "optim/learning_rate": rate,
        "optim/skipped_step": float(skipped),
        "optim/direction_norm": direction,
        **{f"{kind}/norm/total": float(np.sqrt(np.square(row).sum())) for kind, row in zip(NORMS, norms, strict=True)},
        "throughput/tokens_per_second": speed,
        "throughput/step_seconds": meter.seconds[-1] if meter.seconds else meter.first_seconds or 0.0,
        "throughput/input_stall_seconds": meter.stalled,
        **{f"throughput/{name}": value for name, value in meter.arithmetic.rates(speed).items()},
        **{f"memory/{name}": float(value) for name, value in memory().items()},
    }
    for kind, numbers in zip(NORMS, norms, strict=True) if names else ():
        values |= {f"{kind}/norm/{name}": float(number) for name, number in zip(names or (), numbers, strict=True)}
    return values


def memory() -> dict[str, int]:
    """Resident bytes of this process, now and at their peak, and bytes of its first device if the back-end counts them."""
    host = {
        "host_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    device = jax.local_devices()[0].memory_stats()
    if not device:
        return host
    return host | {"device_bytes": device["bytes_in_use"], "device_peak_bytes": device["peak_bytes_in_use"]}


@dataclass
class Throughput:
    """Step times and tokens of this process, without compile time, and the display of progress."""

    spec: RunSpec
    arithmetic: Arithmetic
    show: Show = field(default_factory=LogLines)
    last: float = field(default_factory=time.perf_counter)
    seconds: list[float] = field(default_factory=list)
    spent: float = 0.0
    """The sum of `seconds`."""
    tokens: list[int] = field(default_factory=list)
    """Tokens of the step whose time has the same index in `seconds`."""
    first_seconds: float | None = None
    progress: Progress = field(init=False)
    stalled: float = 0.0
    """Seconds that steps waited for their batches."""

    def __post_init__(self) -> None:
        self.progress = Progress(f"training {self.spec.name}", self.spec.num_steps)

    def begin(self) -> None:
        """Start the clock of the first step."""
        self.last = time.perf_counter()

    def tick(self, row: tuple) -> None:
        """Record that the step of a row has ended, and show it."""
        now = time.perf_counter()
        if self.first_seconds is None:
            self.first_seconds = now - self.last
        else:
            self.seconds.append(now - self.last)
            self.spent += self.seconds[-1]
            self.tokens.append(self.spec.step_tokens(row[0] - 1))
        self.last = now
        speed, left = self.tokens_per_second(100), (self.spec.num_steps - row[0]) * self.step_seconds()
        self.progress.at(row[0], lambda: {"loss_nats": row[1], "tokens_per_second": speed})
        mfu = self.arithmetic.rates(speed).get("mfu")
        self.show.step(StepReport(row[0], self.spec.num_steps, row[1], row[2], speed, left, self.stall_share(), mfu))

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds as time of a step."""
        self.last += seconds

    def step_seconds(self) -> float:
        return statistics.fmean(self.seconds[-100:]) if self.seconds else self.first_seconds or 0.0

    def stall_share(self) -> float:
        """Share of the time of all steps after the first that was spent waiting for batches."""
        return self.stalled / max(self.spent, 1e-9) if self.seconds else 0.0

    def tokens_per_second(self, recent: int | None = None) -> float:
        """Speed over the last `recent` steps, or over all; until a second step ends, that of the first with its compilation."""
        count = len(self.seconds) if recent is None else min(recent, len(self.seconds))
        if not count:
            return self.spec.step_tokens(0) / self.first_seconds if self.first_seconds else 0.0
        return sum(self.tokens[-count:]) / max(sum(self.seconds[-count:]), 1e-9)

    def summary(self) -> dict[str, float]:
        """The `throughput` entry of a checkpoint's manifest."""
        mean = statistics.fmean(self.seconds) if self.seconds else self.first_seconds or 0.0
        speed = self.tokens_per_second()
        return {
            "tokens_per_second": round(speed, 1),
            "step_seconds_mean": round(mean, 5),
            "input_stall_share": round(self.stall_share(), 5),
            "compile_seconds": round(self.first_seconds or 0.0, 3),
            "flops_per_token": self.arithmetic.levanter,
            "flops_per_token_causal": self.arithmetic.causal,
            **{name: round(value, 4) for name, value in self.arithmetic.rates(speed).items()},
            **memory(),
        }
