"""Batches of a run, read ahead by a thread while steps run, and how long steps waited for them all the same."""

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import numpy as np

from lineage.order import DataOrder
from lineage.rows import Rows as HostRows
from trainer.config import RunSpec

log = logging.getLogger("trainer")

BATCHES_AHEAD = 4
TOKENS_AT_ONCE = 1 << 18
"""Of one read: a MiB, which caches hold, and 64 steps of the smallest batches."""
STALL_SECONDS = 0.5
"""A step that waits longer for its batch is told of, as in Levanter."""
type Rows = jax.Array | np.ndarray
"""[batch, sequence], whole or as a process's devices hold it."""


class Batch(NamedTuple):
    """What a step reads."""

    tokens: Rows
    weights: Rows | None = None
    """Of each token as what is to be predicted; None where every one counts once."""
    segment_ids: Rows | None = None
    """Tokens attend to their own segment; None where attention crosses documents."""


type Place = Callable[[int, Callable[[int, int], np.ndarray]], Rows]
"""(rows of the batch, read(first row, number of rows)) -> those rows, where the devices of this process want them."""


def whole(size: int, read: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Every row, on the host: what one device wants."""
    return read(0, size)


def batch_of(order: DataOrder, spec: RunSpec, step: int, place: Place = whole, begin: int = 0) -> Batch:
    """What a step reads, a pure function of the step; step 0 begins with the global sequence `begin`."""
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
    """What `count` steps read, on the host: views of rows that are read at once, because a read of a few thousand tokens costs
    more in calls than in copies (benchmarks/loader.py)."""
    batches = spec.batches
    starts = [begin + batches.first(each) for each in range(step, step + count + 1)]
    found = order.rows(starts[0], starts[-1] - starts[0], within_documents=not spec.cross_document_attention)
    rows = [slice(first - starts[0], end - starts[0]) for first, end in itertools.pairwise(starts)]
    return [
        Batch(found.tokens[mine], *(None if each is None else each[mine] for each in (found.weights, found.segment_ids)))
        for mine in rows
    ]


def steps_at_once(spec: RunSpec) -> int:
    """How many steps' batches are best read at once, by the smallest batch of the run."""
    smallest = min(phase.batch_size for phase in spec.batches.phases) * spec.seq_len
    return max(1, TOKENS_AT_ONCE // smallest)


@dataclass
class Loader:
    """Hands out the batches of steps in order; `read(step, count)` makes those of some steps and runs in a thread of its own,
    some batches ahead: first one, then twice as many each time, up to `at_once`."""

    read: Callable[[int, int], Sequence[Batch]]
    at_once: int = 1
    ahead: int = BATCHES_AHEAD
    """How many batches are being read, at least, when one is handed out."""
    first_seconds: float = 0.0
    """What the first batch took: nothing could be read ahead of it."""
    stalled: float = 0.0
    """Seconds that steps after the first waited for their batches."""

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, Batch]]:
        """(step, batch) of the steps `[start, stop)`. Raises: what `read` raised, at the first of the steps read together."""
        waiting: deque[Future[Sequence[Batch]]] = deque()
        ready: deque[Batch] = deque()
        asked, size = start, 1
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            try:
                for step in range(start, stop):
                    while asked < stop and asked - step <= max(self.ahead, self.at_once):
                        count = min(size, stop - asked)
                        waiting.append(pool.submit(self.read, asked, count))
                        asked, size = asked + count, min(2 * size, self.at_once)
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
