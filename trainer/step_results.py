"""Read what steps return a few steps late, so that the host never waits for the step it has just started."""

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import polars as pl

from trainer.checkpoint import METRICS_SCHEMA, Tables
from trainer.gradient_noise import RecentNoise
from trainer.meter import Throughput, row_of, values_of
from trainer.router_table import SCHEMA, router_rows, router_values
from trainer.signals import StopRequest, merge, read_request
from trainer.spec.config import RunSpec
from trainer.spec.stage import NOISE_COLUMNS
from trainer.step import StepMetrics
from trainer.trackers import Trackers

READ_BEHIND = 8
"""Steps between starting a step and reading its loss, at most."""
READ_SECONDS = 2.0
"""Seconds of steps in flight at most, so that a preempted run can save promptly."""


def steps_ahead(seconds: Sequence[float]) -> int:
    """How many steps may be in flight when the next one starts, from the times of the steps that were read.

    0 before two times are known, and 0 where one step alone takes too long: SIGTERM takes effect when the running step ends.
    """
    if len(seconds) < 2:
        return 0
    return min(READ_BEHIND, int(READ_SECONDS / max(statistics.fmean(seconds[-100:]), 1e-9)))


@dataclass
class StepResults:
    """Metrics of the steps of one attempt: those still on the device, and those that were read."""

    spec: RunSpec
    meter: Throughput
    trackers: Trackers
    norm_names: tuple[str, ...]
    """Names of the weight norms, in the order of `StepMetrics.norms`."""
    watch_steps: int
    """Steps between rows of the trackers that hold the norm of every weight."""
    alive: Callable[[], None]
    """Called once a step is read: the run makes progress."""
    saved: Tables
    """Rows of earlier attempts, and of this one up to its last checkpoint."""
    waiting: deque[tuple[int, StepMetrics, StopRequest | jax.Array]] = field(default_factory=deque)
    rows: list[tuple] = field(default_factory=list)
    routers: list[tuple] = field(default_factory=list)
    """Rows of `trainer.router_table`."""
    extras: list[dict[str, float]] = field(default_factory=list)
    """More metrics of each row by name: those of the objective, and the terms of the gradient's noise."""
    request: StopRequest = field(default_factory=lambda: StopRequest(hurry=READ_BEHIND))
    """What all processes agreed on in the steps that were read."""
    noise: RecentNoise = field(init=False)

    def __post_init__(self) -> None:
        self.noise = RecentNoise.of(self.saved.metrics)

    def started(self, step: int, metrics: StepMetrics, agreed: StopRequest | jax.Array) -> None:
        """Remember a step that was started."""
        self.waiting.append((step, metrics, agreed))

    def read_down_to(self, count: int) -> None:
        """Read the metrics of all but the newest `count` steps."""
        while len(self.waiting) > count:
            step, metrics, agreed = self.waiting.popleft()
            extras = {name: float(value) for name, value in (metrics.extras or {}).items()}
            self.rows.append(row_of(self.spec, step, metrics))
            terms = {} if metrics.noise is None else dict(zip(NOISE_COLUMNS, map(float, metrics.noise), strict=True))
            self.extras.append(extras | terms)
            self.alive()
            self.meter.tick(self.rows[-1])
            watched = (step + 1) % self.watch_steps == 0 or step + 1 == self.spec.num_steps
            values = values_of(self.rows[-1], metrics, self.meter, self.norm_names if watched else None)
            if metrics.router is not None:
                routing_rows = router_rows(step + 1, metrics.router)
                self.routers += routing_rows
                values |= router_values(routing_rows)
            values |= {f"objective/{name}": value for name, value in extras.items()}
            if terms:
                self.noise.add(tuple(terms.values()))
                values |= self.noise.values()
            self.trackers.log(step + 1, values)
            self.request = merge((self.request._replace(hurry=0), read_request(agreed)))

    def read_in_flight(self) -> None:
        """Read all steps but those that may stay in flight."""
        self.read_down_to(READ_BEHIND - self.request.hurry)

    def own_hurry(self) -> int:
        """How many steps earlier than usual this process wants metrics to be read."""
        return READ_BEHIND - steps_ahead(self.meter.seconds)

    def tables(self) -> Tables:
        """Rows of every step that was read, for a checkpoint."""
        read = pl.DataFrame(self.rows, schema=METRICS_SCHEMA, orient="row")
        if any(self.extras):
            read = read.hstack(pl.DataFrame(self.extras, infer_schema_length=None))
        metrics = pl.concat([self.saved.metrics, read], how="diagonal")
        router = self.saved.router
        if self.routers:
            earlier = [] if router is None else [router]
            router = pl.concat([*earlier, pl.DataFrame(self.routers, schema=SCHEMA, orient="row")])
        self.saved, self.rows, self.extras, self.routers = Tables(metrics, router), [], [], []
        return self.saved

    def clear_request(self) -> None:
        """Forget the request, which was carried out."""
        self.request = StopRequest(hurry=self.request.hurry)
