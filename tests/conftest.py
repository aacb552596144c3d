"""What all tests share: Hypothesis profiles, one compilation cache, limits on workers, a GCS server."""

import ctypes
import gc
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gcs_server import GcsServer, gcs_server
from properties import register_profiles

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

COMPILATION_BYTES = 2 << 30
COMPILATION_SECONDS = 0.1
"""Programs that compile faster are not kept. tests/trainer/test_moe.py and test_step.py take 79 CPU s without a cache,
44 with one that keeps from .3 s on, 22 with one that keeps all; writing all of them costs about 20 in the first run.
"""

LARGE_PROCESS_BYTES = 600 << 20
FULL_PROCESS_BYTES = 1050 << 20
"""A process this large frees compiled programs after a test, not only after a module. One that has collected all tests
holds 800 MiB, and a test adds up to 430.
"""
MIN_FREED_BYTES = 100 << 20
"""It does so again once it has grown by this much, so that what it cannot free does not cost every test its programs."""
_PEAKS = pytest.StashKey[dict[str, tuple[int, list[tuple[int, str]]]]]()
_GROWTH = pytest.StashKey[list[tuple[int, str]]]()
_FLOOR = pytest.StashKey[int]()
_SECONDS: Counter[str] = Counter()

register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    """Give JAX, in this process and in jobs that tests start, one compilation cache that outlives the run.

    A size limit makes JAX lock the cache (jax/_src/lru_cache.py), so several processes may read and write it at once.
    JAX reads the variables when it is imported. It is imported already when pytest was given a folder whose conftest
    imports it, so its settings are changed too.
    """
    config.stash[_PEAKS] = {}
    config.stash[_GROWTH] = []
    config.stash[_FLOOR] = 0
    os.environ["MARIN_RECIPES"] = str(config.cache.mkdir("no_recipes"))  # tests do not read declarations of the checkout
    settings: dict[str, str | int | float] = {
        "jax_compilation_cache_dir": str(config.cache.mkdir("compilations")),
        "jax_compilation_cache_max_size": COMPILATION_BYTES,
        "jax_persistent_cache_min_compile_time_secs": COMPILATION_SECONDS,
    }
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)
        if jax := sys.modules.get("jax"):
            jax.config.update(name, value)


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A GCS-protocol server on loopback, and the environment that points Google's clients at it."""
    with gcs_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.fixture(scope="module", autouse=True)
def bounded_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Free compiled programs after a module that leaves a large process, and record by how much the module raised its peak."""
    before = peak_bytes()
    yield
    request.config.stash[_GROWTH].append((peak_bytes() - before, request.node.nodeid))
    if resident_bytes() > LARGE_PROCESS_BYTES:
        free_programs()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Free compiled programs after a test that leaves a process near its limit."""
    floor = item.config.stash[_FLOOR]
    if resident_bytes() > max(FULL_PROCESS_BYTES, floor + MIN_FREED_BYTES):
        free_programs()
        item.config.stash[_FLOOR] = resident_bytes()


def free_programs() -> None:
    """Drop JAX's compiled programs; the cache on disk keeps them. glibc keeps freed memory, so it is told to return it."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of each test file; end the run when a worker died during a test, whose report xdist makes up."""
    _SECONDS[report.location[0]] += report.duration
    if report.when == "???":
        pytest.exit(str(report.longrepr))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report this process's peak memory (a worker sends it to the controller); keep seconds for tools/affected_tests.py."""
    config = session.config
    report = (peak_bytes(), sorted(config.stash[_GROWTH], reverse=True)[:5])
    if hasattr(config, "workeroutput"):
        config.workeroutput["peak"] = report
        return
    if not config.getoption("numprocesses", None):
        config.stash[_PEAKS]["this process"] = report
    config.cache.set("marin/seconds", config.cache.get("marin/seconds", {}) | _SECONDS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: "WorkerController", error: object | None) -> None:
    """Keep the worker's peak memory."""
    if "peak" in getattr(node, "workeroutput", {}):
        node.config.stash[_PEAKS][node.gateway.id] = node.workeroutput["peak"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each worker's peak memory and the modules that raised it most."""
    for name, (peak, modules) in sorted(terminalreporter.config.stash[_PEAKS].items()):
        grown = ", ".join(f"{module} +{grown >> 20}" for grown, module in modules if grown >> 20)
        terminalreporter.write_line(f"peak memory of {name}: {peak >> 20} MiB ({grown})")
