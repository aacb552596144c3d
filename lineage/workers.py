"""One worker process: it takes one call at a time and may die, which fails that call only. `lineage.crew` has several.

`concurrent.futures.ProcessPoolExecutor` gives all its work up when one worker dies, and does not say of what. Here the parent
talks to each worker over a pipe of its own, looks at its memory, and tells a death by memory from another. A worker does not
outlive its parent: a pipe that nobody writes to ends when the parent does, even by `kill -9`.

A worker is a plain child process that imports what its calls name, and nothing else. `multiprocessing` would import the
parent's main module too: the whole graph and JAX, 5 to 8 s of a core for every worker of every pool. Nor is one forked from a
process that has imported a stage: numpy, polars and Arrow have six threads in it by then, and a fork has none of them.
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

from lineage.measure import read_proc, rss_bytes
from lineage.oom_kills import oom_kills, oom_record

BOOT = "import sys; from lineage.workers import serve; serve(*map(int, sys.argv[1:]))"
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{64 << 20}"}
"""For workers: glibc keeps up to 64 MiB that was freed for the next arrays. By its own rule (twice the largest block that was
freed so far) it gave them back to the system and took them anew at every batch of a scan: 490,000 page faults in 26 shards of
contamination, 1 s of 5, where there are 14,000 now, at the same peak. These are the largest values that its rule comes to, as
it does in a process that has read a large file. Other C libraries ignore them."""
type Call = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(frozen=True)
class Death:
    """How a worker ended in the middle of a call, and the highest resident memory that was seen of it."""

    exit_code: int
    peak_rss_bytes: int
    by_memory: bool
    """Whether there is evidence that memory was the cause: the kernel's own count, or a limit that it had reached."""

    def __str__(self) -> str:
        how = f"killed by {signal.Signals(-self.exit_code).name}" if self.exit_code < 0 else f"ended with {self.exit_code}"
        why = "out of memory" if self.by_memory else "no out-of-memory kill is on the kernel's record"
        return f"its worker was {how} at a peak of {self.peak_rss_bytes / 2**20:.0f} MiB; {why}"


@dataclass(frozen=True)
class Began:
    """Said by a worker before each call, a floor of its peak: it may die before anybody looks, and the dead have no memory."""

    rss_bytes: int


@dataclass(frozen=True)
class Warmed:
    """A worker's answer to what it was given ahead of its calls: ready, or why not."""

    error: str = ""


@dataclass(frozen=True)
class Raised:
    """A worker's answer where a call raised: the exception as text, since not every one crosses a process border."""

    error: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.error}\n{self.traceback}"


@dataclass(eq=False)
class Worker:
    """One process and the parent's ends of its two pipes."""

    memory_bytes: int | None
    """Bounds the data that it holds (RLIMIT_DATA)."""

    core: int | None = None
    """The one that it keeps to (`cores.py`)."""

    call: str | None = None
    """The name of the call that it is at."""

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
        """Give it something to do ahead of its calls; a Warmed comes before their answers then."""
        self._send((warmed, call))

    def start(self, name: str, call: Call) -> None:
        record = oom_record(self.process.pid)
        self.call, self.ooms = name, (record, oom_kills(record))
        self.peak_rss_bytes = 0
        self._send(call)

    def _send(self, call: Call) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died while it waited: `answer` tells
            self.pipe.send(call)

    def sample(self) -> None:
        self.peak_rss_bytes = max(self.peak_rss_bytes, peak_rss_bytes(self.process.pid))

    def answer(self) -> object:
        """What the call returned, the Death of the worker, a Began or a Warmed. Asked when there is something or an end."""
        try:
            said = self.pipe.recv()
            if isinstance(said, Began):
                self.peak_rss_bytes = max(self.peak_rss_bytes, said.rss_bytes)
            return said
        except (EOFError, OSError):  # an end in the middle of an answer is a plain OSError
            code = self.process.wait()
            at_limit = self.memory_bytes is not None and self.peak_rss_bytes > self.memory_bytes // 2
            record, before = self.ooms
            by_memory = (code == -signal.SIGKILL and oom_kills(record) > before) or (at_limit and code < 0)
            return Death(code, self.peak_rss_bytes, by_memory)

    def end(self) -> None:
        """Kill it: workers of a background job ignore SIGTERM (it ignores SIGINT, and Dagster gives SIGTERM that handler)."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.lifeline.close()


def serve(pipe_handle: int, lifeline_handle: int, memory_bytes: int, core: int | None = None) -> None:
    """The worker: calls from a pipe until its end. The pipes are file descriptors that it inherits; 0 bytes is no limit."""
    if core is not None:
        os.sched_setaffinity(0, {core})  # before anything is imported that counts cores
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
        pipe.send(Began(rss_bytes(os.getpid())))
        pipe.send(function(*arguments))


def told(function: Callable[..., object], arguments: tuple[object, ...]) -> object:
    """What a function returns, or that it raised."""
    try:
        return function(*arguments)
    except Exception as error:  # whatever a call raises is its answer; the map tells it under the call's name
        return Raised(f"{type(error).__name__}: {error}", traceback.format_exc())


def warmed(function: Callable[..., object], arguments: tuple[object, ...]) -> Warmed:
    """Do what calls will need (imports, tables). What goes wrong here goes wrong in them too, where it fails one by name."""
    answer = told(function, arguments)
    return Warmed(str(answer) if isinstance(answer, Raised) else "")


def _end_with_parent(lifeline: Connection) -> None:
    """A call may take hours and write where the next attempt works: it ends at once when the parent has."""
    with contextlib.suppress(EOFError):  # that is the parent's end
        lifeline.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def _forget_peak() -> None:
    """Let the peak count from here (Linux; where it is refused the peak stays that of the worker's whole life)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_bytes(pid: int | None) -> int:
    """The kernel's high-water mark of a process's resident memory; 0 when it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for line in read_proc(f"{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
