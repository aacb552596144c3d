"""Choose the core that a worker process is pinned to.

polars hands most calls to a thread of its pool and sleeps. If there are as many workers as cores, the system often wakes that
thread on a core where another worker runs, and it waits while its own core is idle. A pinned worker's threads share one core,
so they run at once, and libraries that count cores at import start one thread only. Two workers on two cores slept 0.15 s of
1.36 s unpinned and 0.04 s of 1.15 s pinned (docs/design/workers.md).
"""

import os
from collections import Counter
from collections.abc import Iterable


def own_core(workers: int, taken: Iterable[int | None]) -> int | None:
    """Return a core for the next of `workers` workers: the core of this process that is in `taken` least often.

    Returns None if there are fewer workers than cores (then there is room for a worker's threads), and if the system cannot
    pin a process (macOS).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores or workers < len(cores):
        return None
    holders = Counter(taken)
    return min(cores, key=lambda core: (holders[core], core))
