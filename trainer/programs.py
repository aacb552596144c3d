"""Compiled programs on disk: a restart on this machine, or the next job of a process, does not compile again."""

import hashlib
import logging
import platform as machine
from pathlib import Path

import jax

SHORTEST_SECONDS = 0.3
"""Programs of CPUs that compile faster are not kept."""
MOST_BYTES = 1 << 30


def keep_programs(folder: Path, platform: str, *, many: bool) -> Path | None:
    """Keep compiled programs in a folder. A folder that JAX_COMPILATION_CACHE_DIR names is kept.

    Programs of CPUs take seconds, so they are kept only in a process with `many` jobs, apart for each kind of CPU: a program
    may use instructions that another lacks. Returns the folder in use; None if none is kept, or if the user named one.
    """
    chosen = jax.config.jax_compilation_cache_dir
    if chosen is not None:
        kept = folder / _kind(platform)
        return kept if chosen == str(kept) else None
    if platform == "cpu":
        if not many:
            return None
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_SECONDS)
        jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    folder = folder / _kind(platform)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    logging.getLogger("trainer").info("compiled programs are kept in %s (JAX_COMPILATION_CACHE_DIR)", folder)
    return folder


def _kind(platform: str) -> str:
    """A name for the devices that can run one another's programs. JAX's own key distinguishes models of accelerators."""
    return f"cpu-{_cpu()}" if platform == "cpu" else platform


def _cpu() -> str:
    """A name for this kind of CPU: what it can do, as Linux lists it."""
    listed = Path("/proc/cpuinfo")
    text = listed.read_text() if listed.exists() else machine.processor()
    flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), text)
    return hashlib.sha256(f"{machine.machine()} {flags}".encode()).hexdigest()[:8]
