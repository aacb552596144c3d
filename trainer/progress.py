"""Show the progress of a run: a bar on a terminal, a log line every few seconds anywhere else."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

log = logging.getLogger("trainer")

REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class StepReport:
    """A run after one of its steps."""

    step: int
    num_steps: int
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds_left: float
    stall_share: float
    """Share of step time that was spent waiting for data."""
    mfu: float | None
    """Model FLOPs utilization by Levanter's definition; None if the peak of the device is unknown."""

    def numbers(self) -> str:
        """Loss, learning rate and speed, in columns of constant width."""
        mfu = "" if self.mfu is None else f"  MFU {100 * self.mfu:4.1f} %"
        return (
            f"loss {self.loss:.4f}  lr {self.learning_rate:.2e}  {self.tokens_per_second:7,.0f} tokens/s{mfu}  "
            f"{100 * self.stall_share:.1f} % waiting for data"
        )


class Show(Protocol):
    """Shows a run to a person."""

    def step(self, report: StepReport) -> None: ...


@dataclass
class LogLines:
    """A log line every few seconds, and one for the last step."""

    spoken: float = 0.0

    def step(self, report: StepReport) -> None:
        now = time.perf_counter()
        if now - self.spoken > REPORT_SECONDS or report.step == report.num_steps:
            self.spoken = now
            log.info("step %5d/%d  %s  %4.0f s left", report.step, report.num_steps, report.numbers(), report.seconds_left)


@dataclass
class Bar:
    """A bar below the log on a terminal. It starts at the first step, so that earlier log lines stay above it."""

    progress: Progress
    task: TaskID | None = field(default=None)

    def step(self, report: StepReport) -> None:
        if self.task is None:
            self.task = self.progress.add_task("", total=report.num_steps, completed=report.step, start=True)
        self.progress.update(self.task, completed=report.step, total=report.num_steps, description=report.numbers())


@contextmanager
def shown(console: Console, *, is_first: bool) -> Iterator[Show]:
    """Log to a console and show a run there: a bar on the terminal of the first process, else log lines."""
    if console.is_terminal and is_first:
        handler = RichHandler(console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S")
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", handlers=[handler])
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console) as progress:
            yield Bar(progress)
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
        yield LogLines()
