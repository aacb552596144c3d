"""Which core a worker keeps to.

polars hands most calls over to a thread of its pool and waits. With as many workers as cores that thread is woken on a core
where another worker is at work, and stood in line for .5 ms each time, while the core that it was woken from had nothing to
do: .5 s of a stage's 1.6 in two workers on two cores (`schedstat` of each thread; 200 MB, 2026-11-23). A worker that keeps to
one core has its thread's turn at once, and libraries that count cores when they are loaded start one thread and not all.
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
