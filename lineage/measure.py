"""Measure what a block of work cost: wall time, CPU time and peak memory, child processes included.

`getrusage` cannot do it: its peak never falls, so a small stage after a large one would inherit the large one's peak.
A thread reads /proc every 100 ms instead; spikes shorter than that are missed (assumption: fine for stages of seconds).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lineage.manifest import ResourceUse

SAMPLE_SECONDS = 0.1


@dataclass
class Meter:
    """Running measurement; read `use()` at any time."""

    started: float = field(default_factory=time.perf_counter)
    cpu_started: float = field(default_factory=lambda: _cpu_seconds())
    peak_rss_bytes: int = 0

    def sample(self) -> None:
        self.peak_rss_bytes = max(self.peak_rss_bytes, _tree_rss_bytes(os.getpid()))

    def use(self) -> ResourceUse:
        self.sample()
        return ResourceUse(
            wall_seconds=round(time.perf_counter() - self.started, 3),
            cpu_seconds=round(_cpu_seconds() - self.cpu_started, 3),
            peak_rss_bytes=self.peak_rss_bytes,
        )


@contextmanager
def measuring() -> Iterator[Meter]:
    """Sample memory in a thread while the block runs."""
    meter = Meter()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            meter.sample()

    thread = threading.Thread(target=watch, name="memory-meter", daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        stop.set()
        thread.join()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _tree_rss_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants; a process that ends meanwhile counts as nothing."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [
            int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_tree_rss_bytes(child) for child in children)
