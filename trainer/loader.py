"""Batches of a run, read ahead by a thread while steps run, and how long steps waited for them all the same."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def batch_of(order: DataOrder, spec: RunSpec, step: int, place: Place = whole) -> Batch:
    """What a step reads, a pure function of the step."""
    first, size = spec.batches.first(step), spec.batches.size(step)
    within = not spec.cross_document_attention

    @cache
    def rows(row: int, number: int) -> HostRows:
        found = order.rows(first + row, number, within_documents=within)
        if number == size and found.weights is not None and not found.weights[:, 1:].any():
            log.warning("%s: no token of step %d counts in the loss; it moves nothing but weight decay", spec.name, step)
        return found

    def placed(name: str) -> Rows:
        return place(size, lambda row, number: getattr(rows(row, number), name))

    return Batch(
        placed("tokens"),
        placed("weights") if order.has_weights or within else None,
        placed("segment_ids") if within else None,
    )


@dataclass
class Loader:
    """Hands out the batches of steps in order; `read` makes one and runs in a thread of its own, some batches ahead."""

    read: Callable[[int], Batch]
    ahead: int = BATCHES_AHEAD
    first_seconds: float = 0.0
    """What the first batch took: nothing could be read ahead of it."""
    stalled: float = 0.0
    """Seconds that steps after the first waited for their batches."""

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, Batch]]:
        """(step, batch) of the steps `[start, stop)`. Raises: what `read` raised, at its step."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            waiting = deque(pool.submit(self.read, step) for step in range(start, min(start + self.ahead, stop)))
            try:
                for step in range(start, stop):
                    if step + self.ahead < stop:
                        waiting.append(pool.submit(self.read, step + self.ahead))
                    asked = time.perf_counter()
                    batch = waiting.popleft().result()
                    self._waited(step, time.perf_counter() - asked, is_first=step == start)
                    yield step, batch
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
