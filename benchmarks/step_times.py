"""What every side of a training benchmark measures alike. Needs numpy only: peers run it in their own environments."""

import json
import resource
import time
from collections.abc import Callable, Iterable

import numpy as np


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report_steps(step: Callable[[np.ndarray], float], batches: Iterable[np.ndarray], matmul: Callable[[], None], versions: str):
    """Take a step a batch and print one JSON line. `step` returns the loss when its work is done; the first is not timed.

    `matmul` multiplies two float32 matrices of 2,048 on a side once: the rate that the machine reaches in this process.
    """
    losses, seconds, used = [], [], []
    for tokens in batches:
        started, before = time.perf_counter(), cpu_seconds()
        losses.append(float(step(tokens)))
        seconds.append(time.perf_counter() - started)
        used.append(cpu_seconds() - before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    matmul()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        matmul()
        times.append(time.perf_counter() - started)
    rate = 2 * 2048**3 / min(times) / 1e9
    measured = {"losses": losses, "seconds": seconds[1:], "cpu_seconds": used[1:], "peak_mib": peak, "matmul_gflops": rate}
    print(json.dumps({**measured, "versions": versions}))
