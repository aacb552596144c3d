"""What all tests share: Hypothesis profiles, one compilation cache, limits on workers, a GCS server."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from gcs_server import GcsServer, gcs_server
from memory import forget_cached, free_programs, peak_bytes, resident_bytes, return_freed_memory
from properties import register_profiles

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

COMPILATION_BYTES = 2 << 30
COMPILATION_SECONDS = 0.1
"""Programs that compile faster are not kept. tests/trainer/test_moe.py and test_step.py take 79 CPU s without a cache,
44 with one that keeps from .3 s on, 22 with one that keeps all; writing all of them costs about 20 in the first run.
"""

FULL_PROCESS_BYTES = 1000 << 20
"""A process this large frees compiled programs after a test. One that has collected all tests holds 800 MiB."""
MIN_GROWTH_BYTES = 50 << 20
"""A process that has grown by this much since it last gave memory back does so again. A compilation leaves 200 MiB of freed
memory in the process, which malloc keeps unless it is asked for it, and 35 MiB of program.
"""
LONGEST = frozenset({"test_ledger.py", "test_training.py", "test_two_hosts.py"})
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


@pytest.fixture
def server(gcs: GcsServer) -> Iterator[GcsServer]:
    """The session's server with nothing counted and no fault waiting."""
    gcs.counts.clear()
    gcs.faults.clear()
    yield gcs
    gcs.faults.clear()
    gc.collect()  # google-cloud-storage leaves the sockets of broken answers to the collector: here, where it is expected


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """Compile programs of this process with few optimizations: most run once, and compiling was most of their time.

    Jobs that tests start, and with them everything that is compared bit for bit between processes, compile as users' do.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests: at the end of a run, one would keep a worker busy and the other waiting."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Exempt what collecting has made from garbage collection: to walk its 770,000 objects takes .35 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def recorded_peak(request: pytest.FixtureRequest) -> Iterator[None]:
    """Record by how much a module raised the peak of its process, and empty the module's caches."""
    before = peak_bytes()
    yield
    forget_cached(request.module)
    request.config.stash[_GROWTH].append((peak_bytes() - before, request.node.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Give freed memory back after a test that left the process larger; free compiled programs if that is not enough."""
    stash = item.config.stash
    limit = stash[_FLOOR] + MIN_GROWTH_BYTES
    if resident_bytes() < limit:
        return
    return_freed_memory(cycles=False)  # collecting cycles was 5.5 % of the time of tests/trainer
    if resident_bytes() < limit:
        return
    return_freed_memory()
    if resident_bytes() > FULL_PROCESS_BYTES:
        free_programs()
    stash[_FLOOR] = resident_bytes()


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
