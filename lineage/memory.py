"""Memory of this process: give freed pages back to the system, and keep the garbage collector out of large imports."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager


def release_freed_memory() -> None:
    """Collect garbage and return free pages, where the C library can (glibc keeps them: 190 MB of 530 after an index of
    29,000 items, 2026-11-25). A process that waits for a job must not hold what its own stages needed."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in the block, which makes many objects and no circles: a collection looks at every object of the
    process, .15 s once numba is loaded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
