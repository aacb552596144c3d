"""Read the batches of a run ahead in a thread, and measure how long steps still waited for them."""

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from lineage.order.order import DataOrder
from lineage.order.rows import Rows as HostRows
from trainer.batch import Batch, Rows
from trainer.spec.config import RunSpec

log = logging.getLogger("trainer")

BATCHES_AHEAD = 4
TOKENS_AT_ONCE = 1 << 18
"""Tokens of one read: 1 MiB, which a CPU cache holds, and 64 steps of the smallest batches."""
STALL_SECONDS = 0.5
"""Log a warning when a step waits longer than this for its batch, as Levanter does."""
type Place = Callable[[int, Callable[[int, int], np.ndarray]], Rows]
"""(rows of the batch, read(first row, number of rows)) -> those rows, placed on the devices of this process."""


def whole(size: int, read: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Every row, on the host: the placement for one device."""
    return read(0, size)


def batch_of(order: DataOrder, spec: RunSpec, step: int, place: Place = whole, begin: int = 0) -> Batch:
    """The batch of a step, a pure function of the step. Step 0 begins with the global sequence `begin`."""
    if place is whole:
        return batches_of(order, spec, step, 1, begin)[0]
    first, size = begin + spec.batches.first(step), spec.batches.size(step)
    within = not spec.cross_document_attention

    @cache
    def rows(row: int, number: int) -> HostRows:
        return order.rows(first + row, number, within_documents=within)

    def placed(name: str) -> Rows:
        return place(size, lambda row, number: getattr(rows(row, number), name))

    return Batch(
        placed("tokens"),
        placed("weights") if order.has_weights or within else None,
        placed("segment_ids") if within else None,
    )


def batches_of(order: DataOrder, spec: RunSpec, step: int, count: int, begin: int = 0) -> list[Batch]:
    """The batches of `count` steps, on the host, as views of rows that are read together.

    A read of a few thousand tokens costs more in calls than in copies (benchmarks/loader.py).
    """
    batches = spec.batches
    starts = [begin + batches.first(each) for each in range(step, step + count + 1)]
    block = order.rows(starts[0], starts[-1] - starts[0], within_documents=not spec.cross_document_attention)
    rows = [slice(first - starts[0], end - starts[0]) for first, end in itertools.pairwise(starts)]
    return [
        Batch(block.tokens[mine], *(None if each is None else each[mine] for each in (block.weights, block.segment_ids)))
        for mine in rows
    ]


def steps_at_once(spec: RunSpec) -> int:
    """How many steps to read together, from the smallest batch of the run."""
    smallest = min(phase.batch_size for phase in spec.batches.phases) * spec.seq_len
    return max(1, TOKENS_AT_ONCE // smallest)


@dataclass
class Loader[B]:
    """Yields the batches of steps in order. `read(step, count)` returns those of some steps and runs in a thread, ahead.

    The first read is of one step, each later one of twice as many, up to `at_once`.
    """

    read: Callable[[int, int], Sequence[B]]
    at_once: int = 1
    ahead: int = BATCHES_AHEAD
    """How many batches, at least, are being read when one is yielded."""
    first_seconds: float = 0.0
    """Seconds that the first batch took; nothing could be read ahead of it."""
    stalled: float = 0.0
    """Seconds that steps after the first waited for their batches."""

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, B]]:
        """(step, batch) of the steps `[start, stop)`. Raises: the error of `read`, at the first step of that read."""
        waiting: deque[Future[Sequence[B]]] = deque()
        ready: deque[B] = deque()
        requested, size = start, 1
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            try:
                for step in range(start, stop):
                    while requested < stop and requested - step <= max(self.ahead, self.at_once):
                        count = min(size, stop - requested)
                        waiting.append(pool.submit(self.read, requested, count))
                        requested, size = requested + count, min(2 * size, self.at_once)
                    if not ready:
                        began = time.perf_counter()
                        ready.extend(waiting.popleft().result())
                        self._waited(step, time.perf_counter() - began, is_first=step == start)
                    yield step, ready.popleft()
            finally:  # of a run that leaves early
                for future in waiting:
                    future.cancel()

    def _waited(self, step: int, seconds: float, *, is_first: bool) -> None:
        if is_first:
            self.first_seconds = seconds
            return
        self.stalled += seconds
        if seconds > STALL_SECONDS:
            log.warning(
                "step %d waited %.2f s for its batch: reading is slower than training, or storage was away", step, seconds
            )
