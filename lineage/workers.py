"""Worker processes that take one call at a time and may die: a death fails its call only, the next gets a new worker.

`concurrent.futures.ProcessPoolExecutor` gives all its work up when one worker dies, and does not say of what. Here the parent
talks to each worker over a pipe of its own, looks at its memory every 100 ms, and tells a death by memory from another. A
worker does not outlive its parent: a pipe that nobody writes to ends when the parent does, even by `kill -9`.

A worker is a plain child process that imports what its calls name, and nothing else. `multiprocessing` would import the
parent's main module too: the whole graph and JAX, 5 to 8 s of a core for every worker of every pool.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from lineage.measure import rss_bytes
from lineage.oom_kills import oom_kills, oom_record

SAMPLE_SECONDS = 0.1
BOOT = "import sys; from lineage.workers import serve; serve(*map(int, sys.argv[1:]))"
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
class _Began:
    """Said by a worker before each call, a floor of its peak: it may die before anybody looks, and the dead have no memory."""

    rss_bytes: int


@dataclass
class _Worker:
    """One process and the parent's ends of its two pipes."""

    memory_bytes: int | None
    call: str | None = None
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
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT, *map(str, ends), str(self.memory_bytes or 0)],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for end in (theirs, their_lifeline):
            end.close()

    def start(self, name: str, call: Call) -> None:
        record = oom_record(self.process.pid)
        self.call, self.ooms = name, (record, oom_kills(record))
        self.peak_rss_bytes = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died while it waited: `answer` tells
            self.pipe.send(call)

    def sample(self) -> None:
        self.peak_rss_bytes = max(self.peak_rss_bytes, peak_rss_bytes(self.process.pid))

    def answer(self) -> object:
        """What the call returned, the Death of the worker, or that the call began. Asked when there is something or an end."""
        try:
            told = self.pipe.recv()
            if isinstance(told, _Began):
                self.peak_rss_bytes = max(self.peak_rss_bytes, told.rss_bytes)
            return told
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


def run_calls(calls: Mapping[str, Call], workers: int, memory_bytes: int | None) -> Iterator[tuple[str, object]]:
    """Run every call in one of so many worker processes: (name, what it returned or the Death of its worker) as they end.

    A call returns what can be pickled and raises nothing. `memory_bytes` bounds the data of one worker (RLIMIT_DATA).
    """
    pending = list(calls)[::-1]
    crew: list[_Worker] = []
    try:
        while pending or any(worker.call for worker in crew):
            while pending and len(crew) < workers:
                crew.append(_Worker(memory_bytes))
            for worker in crew:
                if worker.call is None and pending:
                    name = pending.pop()
                    worker.start(name, calls[name])
            for worker in _ready(crew):
                name, answer = worker.call, worker.answer()
                if isinstance(answer, _Began):
                    continue
                worker.call = None
                if isinstance(answer, Death):
                    crew.remove(worker)
                    worker.end()
                assert name is not None  # only workers with a call are waited for
                yield name, answer
    finally:
        for worker in crew:
            worker.end()


def _ready(crew: Sequence[_Worker]) -> list[_Worker]:
    """Workers whose call has ended, or none after a while; looks at everybody's memory."""
    busy = {worker.pipe: worker for worker in crew if worker.call is not None}
    for worker in busy.values():
        worker.sample()
    ready = set(wait(list(busy), SAMPLE_SECONDS))
    return [worker for pipe, worker in busy.items() if pipe in ready]


def serve(pipe_handle: int, lifeline_handle: int, memory_bytes: int) -> None:
    """The worker: calls from a pipe until its end. The pipes are file descriptors that it inherits; 0 bytes is no limit."""
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
        pipe.send(_Began(rss_bytes(os.getpid())))
        pipe.send(function(*arguments))


def _end_with_parent(lifeline: Connection) -> None:
    """A call may take hours and write where the next attempt works: it ends at once when the parent has."""
    with contextlib.suppress(EOFError):
        lifeline.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def _forget_peak() -> None:
    """Let the peak count from here (Linux; where it is refused the peak stays that of the worker's whole life)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_bytes(pid: int | None) -> int:
    """The kernel's high-water mark of a process's resident memory; 0 when it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
