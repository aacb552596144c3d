"""Which core a worker keeps to.

polars hands most calls over to a thread of its pool and sleeps. With as many workers as cores that thread is woken where
another worker is at work, and stands in line while the core that it was woken from has nothing to do. A worker that keeps to
one core has its thread's turn at once, and libraries that count cores when they are loaded start one thread and not all. Two
workers on two cores slept .15 s of 1.36 so, .04 of 1.15 kept to a core each (docs/design/workers.md).
"""

import os
from collections import Counter
from collections.abc import Iterable


def own_core(workers: int, taken: Iterable[int | None]) -> int | None:
    """A core for the next of so many workers: the one of this process's cores that the fewest of the others have `taken`.

    None where workers are fewer than cores, which then have room for what a worker hands over, and where the system cannot
    keep a process to a core (macOS).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores or workers < len(cores):
        return None
    holders = Counter(taken)
    return min(cores, key=lambda core: (holders[core], core))
