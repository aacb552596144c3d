"""What this process has used, for benchmarks that print it."""

import resource
import time
from pathlib import Path


def peak_mib() -> float:
    """Since it was started; `ru_maxrss` would be what the process that started this one held: it outlives exec."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def bytes_passed() -> tuple[int, int]:
    """Return the bytes that read and write calls of this process and of its ended children passed, cached ones included.

    Pages of mapped files are in neither.
    """
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])
