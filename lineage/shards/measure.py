"""Measure the cost of a block of work: wall time, CPU time and peak memory, with child processes.

The peak of `getrusage` never falls, so a small stage after a large one would inherit its peak. Instead a thread reads /proc
every 100 ms. It misses shorter spikes (assumption: good enough for stages of seconds).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lineage.artifact.manifest import ResourceUse

SAMPLE_SECONDS = 0.1


@dataclass
class Meter:
    """A running measurement; `use()` gives its state at any time."""

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
    """Return the CPU seconds of this process, its living descendants, and every child that one of them has reaped.

    The system's own count for children misses worker processes that a fork server owns.
    """
    ticks = sum(_cpu_ticks(pid) for pid in process_tree(os.getpid()))
    return ticks / os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid: int) -> int:
    """utime + stime + cutime + cstime of /proc/<pid>/stat (fields 14 to 17; the name in field 2 may hold spaces)."""
    try:
        fields = read_proc(f"{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(value) for value in fields[11:15])


def _tree_rss_bytes(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; a process that ends meanwhile counts as 0."""
    return sum(rss_bytes(member) for member in process_tree(pid))


def rss_bytes(pid: int) -> int:
    """Return the resident bytes of a process; 0 when it has ended."""
    try:
        return int(read_proc(f"{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def process_tree(pid: int) -> Iterator[int]:
    """Yield a process and its living descendants."""
    yield pid
    try:
        tasks = [task.name for task in Path(f"/proc/{pid}/task").iterdir()]
        children = [int(child) for task in tasks for child in read_proc(f"{pid}/task/{task}/children").split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from process_tree(child)


def read_proc(name: str) -> bytes:
    """Return the bytes of a file below /proc. Raises: OSError for a process that has ended.

    It does not use pathlib, because pathlib takes three times as long and a worker's 15 threads have a file each.
    """
    file = os.open(f"/proc/{name}", os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)
