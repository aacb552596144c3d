"""One worker process. It runs one call at a time; if it dies, only that call fails (`lineage.shards.worker_pool` has several).

`concurrent.futures.ProcessPoolExecutor` gives up all its work when one worker dies, and does not say why. Here the parent
talks to each worker over its own pipe, samples its memory, and can distinguish a death by memory from others. A worker does not
outlive its parent: its pipe closes when the parent ends, even by `kill -9`.

A worker is a plain child process that imports only what its calls name. `multiprocessing` would also import the parent's main
module: the whole graph and JAX, 5 to 8 s of a core for each worker. A fork of a process that has imported a stage is not
possible either: numpy, polars and Arrow have six threads there, and a fork has none of them.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from lineage.shards.measure import read_proc, rss_bytes
from lineage.shards.oom_kills import oom_kills, oom_record

BOOT = f"import sys; from {__name__} import serve; serve(*map(int, sys.argv[1:]))"
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{64 << 20}"}
"""For workers: glibc keeps up to 64 MiB of freed memory for the next arrays. By its default rule (twice the largest freed
block) it returned them to the system and took them back at every batch of a scan: 490,000 page faults in 26 shards of
contamination (1 s of 5), against 14,000 now, at the same peak. These are the largest values that its rule can reach, for
example in a process that has read a large file. Other C libraries ignore them."""
type Call = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(frozen=True)
class WorkerDied:
    """How a worker ended in the middle of a call, and its highest sampled resident memory."""

    exit_code: int
    peak_rss_bytes: int
    by_memory: bool
    """Whether memory was the cause: the kernel counted a kill, or the worker had reached its limit."""

    def __str__(self) -> str:
        how = f"killed by {signal.Signals(-self.exit_code).name}" if self.exit_code < 0 else f"ended with {self.exit_code}"
        why = "out of memory" if self.by_memory else "no out-of-memory kill is on the kernel's record"
        return f"its worker was {how} at a peak of {self.peak_rss_bytes / 2**20:.0f} MiB; {why}"


@dataclass(frozen=True)
class Started:
    """Sent by a worker before each call with its memory, a lower bound of its peak: it may die before the first sample."""

    rss_bytes: int


@dataclass(frozen=True)
class Ready:
    """A worker's answer to a call of `WorkerPool.warm`: ready, or the error."""

    error: str = ""


@dataclass(frozen=True)
class Failed:
    """A worker's answer if a call raised: the exception as text, since not every exception can be pickled."""

    error: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.error}\n{self.traceback}"


@dataclass(eq=False)
class Worker:
    """One process and the parent's ends of its two pipes."""

    memory_bytes: int | None
    """Limit of the data that it holds (RLIMIT_DATA)."""

    core: int | None = None
    """The core that it is pinned to (`cores.py`)."""

    call: str | None = None
    """The name of the call that it runs."""

    peak_rss_bytes: int = 0
    ooms: tuple[Path, int] = field(init=False)
    """The kernel's record that counts this worker's group, and its count when the call began."""
    lifeline: Connection = field(init=False)
    pipe: Connection = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        their_lifeline, self.lifeline = Pipe(duplex=False)
        self.pipe, theirs = Pipe()
        ends = (theirs.fileno(), their_lifeline.fileno())
        own = () if self.core is None else (self.core,)
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT, *map(str, (*ends, self.memory_bytes or 0, *own))],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            env={**KEPT_MEMORY, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for end in (theirs, their_lifeline):
            end.close()

    def warm(self, call: Call) -> None:
        """Send a call that prepares for later ones; a `Ready` comes before their answers."""
        self._send((warmed, call))

    def start(self, name: str, call: Call) -> None:
        record = oom_record(self.process.pid)
        self.call, self.ooms = name, (record, oom_kills(record))
        self.peak_rss_bytes = 0
        self._send(call)

    def _send(self, call: Call) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died while it was idle; `answer` reports that
            self.pipe.send(call)

    def sample(self) -> None:
        self.peak_rss_bytes = max(self.peak_rss_bytes, peak_rss_bytes(self.process.pid))

    def answer(self) -> object:
        """Return the call's result, a `WorkerDied`, a `Started` or a `Ready`. Call it when the pipe has data or has closed."""
        try:
            message = self.pipe.recv()
            if isinstance(message, Started):
                self.peak_rss_bytes = max(self.peak_rss_bytes, message.rss_bytes)
            return message
        except (EOFError, OSError):  # a pipe that closes in the middle of an answer raises a plain OSError
            code = self.process.wait()
            at_limit = self.memory_bytes is not None and self.peak_rss_bytes > self.memory_bytes // 2
            record, before = self.ooms
            by_memory = (code == -signal.SIGKILL and oom_kills(record) > before) or (at_limit and code < 0)
            return WorkerDied(code, self.peak_rss_bytes, by_memory)

    def end(self) -> None:
        """Kill the worker. SIGTERM is not enough: under Dagster it has the handler of SIGINT, which background jobs ignore."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.lifeline.close()


def serve(pipe_handle: int, lifeline_handle: int, memory_bytes: int, core: int | None = None) -> None:
    """Run calls from a pipe until it closes. The pipes are inherited file descriptors; a limit of 0 bytes means none."""
    if core is not None:
        os.sched_setaffinity(0, {core})  # before any import that counts cores
    pipe, lifeline = Connection(pipe_handle), Connection(lifeline_handle, writable=False)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends its workers
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        _forget_peak()
        pipe.send(Started(rss_bytes(os.getpid())))
        pipe.send(function(*arguments))


def call_catching(function: Callable[..., object], arguments: tuple[object, ...]) -> object:
    """Return what a function returns, or a `Failed` if it raises."""
    try:
        return function(*arguments)
    except Exception as error:  # any exception is the answer; the caller reports it under the call's name
        return Failed(f"{type(error).__name__}: {error}", traceback.format_exc())


def warmed(function: Callable[..., object], arguments: tuple[object, ...]) -> Ready:
    """Prepare for calls (imports, tables). An error here is only reported: the call that needs it fails by name."""
    answer = call_catching(function, arguments)
    return Ready(str(answer) if isinstance(answer, Failed) else "")


def _end_with_parent(lifeline: Connection) -> None:
    """End this process at once when the parent ends: a call may take hours and write where the next attempt works."""
    with contextlib.suppress(EOFError):  # the parent has ended
        lifeline.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def _forget_peak() -> None:
    """Reset the peak of resident memory (Linux). If that is refused, the peak is that of the worker's whole life."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_bytes(pid: int | None) -> int:
    """Return the kernel's peak of a process's resident memory; 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for line in read_proc(f"{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
