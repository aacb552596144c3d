"""Peak memory of this process, for benchmarks that print it."""

from pathlib import Path


def peak_mib() -> float:
    """Since it was started; `ru_maxrss` would be what the process that started this one held: it outlives exec."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
