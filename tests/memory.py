"""What this process holds, and how it gives memory back."""

import ctypes
import functools
import gc
import resource
import sys
from pathlib import Path
from types import ModuleType

CACHED = type(functools.cache(len))
"""What `functools.cache` makes of a function."""


def free_programs() -> None:
    """Drop JAX's compiled programs; the cache on disk keeps them."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    return_freed_memory()


def forget_cached(module: ModuleType) -> None:
    """Empty the caches of functions that a module defines: they hold models and compiled steps until the process ends."""
    for function in vars(module).values():
        if isinstance(function, CACHED) and function.__module__ == module.__name__:
            function.cache_clear()


def return_freed_memory(cycles: bool = True) -> None:
    """Give freed memory back to the kernel, which glibc keeps otherwise; before that, free what only cycles refer to."""
    if cycles:
        gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
