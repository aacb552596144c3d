"""A persistent pool of worker processes: imports and caches survive between maps of shards.

A start costs 0.5 s of a core (imports), and each worker then loads what its stage keeps in memory (frequent words, tables). So
a pool keeps idle workers for the maps of one artifact, or of all artifacts of one process (`Execution.pool`). A worker that
dies is replaced. A worker that was started with another memory limit, environment or path is ended, not reused.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType

from lineage.shards.cores import own_core
from lineage.shards.work_queue import WorkQueue
from lineage.shards.workers import Call, Failed, Ready, Started, Worker, WorkerDied, call_catching

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class _Circumstances:
    """What a process inherits at its start; its calls may have read any of it."""

    memory_bytes: int | None
    folder: Path
    path: tuple[str, ...]
    environment: Mapping[str, str]

    @staticmethod
    def now(memory_bytes: int | None) -> "_Circumstances":
        return _Circumstances(memory_bytes, Path.cwd(), tuple(sys.path), dict(os.environ))


@dataclass(eq=False)
class WorkerPool:
    """Idle workers, each with the circumstances of its start. No process is started before there is work.

    As a context manager it ends the workers on exit. Otherwise they end with this process, however it ends.
    """

    idle: list[tuple[_Circumstances, Worker]] = field(default_factory=list)
    started: list[Worker] = field(default_factory=list)
    """Idle workers and workers of running maps; some may have ended."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the idle workers. Running maps end their own."""
        while self.idle:
            self.idle.pop()[1].end()

    def warm(self, workers: int, memory_bytes: int | None, call: Call) -> None:
        """Start `workers` workers and give each a call that prepares for the next map. Does not wait for it."""
        now = _Circumstances.now(memory_bytes)
        hired = [self._acquire(now, workers) for _ in range(workers)]
        for worker in hired:
            worker.warm(call)
        with self.lock:
            self.idle += [(now, worker) for worker in hired]

    def run(
        self, calls: Mapping[str, Call], workers: int, memory_bytes: int | None, *, in_runs: bool = False
    ) -> Iterator[tuple[str, object]]:
        """Run every call in one of `workers` workers and yield (name, result or `WorkerDied`) as they end.

        Calls start in their order; with `in_runs`, neighbours go to one worker (`WorkQueue`). A call must return a picklable
        value and must not raise. `memory_bytes` limits the data of one worker. If there are at least as many workers as cores,
        each is pinned to one core.
        """
        now = _Circumstances.now(memory_bytes)
        turns, unbegun = WorkQueue(calls, in_runs=in_runs), len(calls)
        hired: list[Worker] = []
        try:
            while unbegun or any(worker.call for worker in hired):
                while unbegun and len(hired) < min(workers, len(calls)):
                    hired.append(self._acquire(now, workers))
                for worker in hired:
                    if worker.call is None and (name := turns.next(worker)) is not None:
                        unbegun -= 1
                        worker.start(name, calls[name])
                for worker in _ready(hired):
                    name, answer = worker.call, worker.answer()
                    if isinstance(answer, Ready) and answer.error:
                        log.warning("a worker could not prepare for its calls: %s", answer.error)
                    if isinstance(answer, Started | Ready):
                        continue
                    worker.call = None
                    if isinstance(answer, WorkerDied):
                        hired.remove(worker)
                        worker.end()
                    assert name is not None  # `_ready` returns only workers with a call
                    yield name, answer
        finally:
            self._release(now, hired)

    def map(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]], workers: int, memory_bytes: int | None
    ) -> list[object]:
        """Return `function(*call)` of every call, in order.

        Raises: RuntimeError that quotes the first failure, or says how its worker died.
        """
        named: dict[str, Call] = {f"{i}": (call_catching, (function, call)) for i, call in enumerate(calls)}
        answers = dict(self.run(named, workers, memory_bytes))
        for name in named:
            if isinstance(answer := answers[name], Failed | WorkerDied):
                raise RuntimeError(f"{function.__name__}, call {name} of {len(calls)}: {answer}")
        return [answers[name] for name in named]

    def _acquire(self, now: _Circumstances, workers: int) -> Worker:
        """Return an idle worker that was started in these circumstances, or start a new one of `workers`."""
        while True:
            with self.lock:
                if not self.idle:
                    self.started = [worker for worker in self.started if worker.process.poll() is None]
                    core = own_core(workers, [worker.core for worker in self.started])
                    if core is not None and not self.started:
                        log.info("%d workers, at least as many as cores: each is pinned to one core", workers)
                    self.started.append(Worker(now.memory_bytes, core))
                    return self.started[-1]
                circumstances, worker = self.idle.pop(0)
            if circumstances == now and worker.process.poll() is None:
                return worker
            worker.end()

    def _release(self, now: _Circumstances, hired: Sequence[Worker]) -> None:
        """Keep idle workers; end those whose call nobody waits for any more."""
        for worker in hired:
            if worker.call is not None:
                worker.end()
        with self.lock:
            self.idle += [(now, worker) for worker in hired if worker.call is None]


def _ready(hired: Sequence[Worker]) -> list[Worker]:
    """Return workers whose call has ended, or none after a short wait; samples the memory of all."""
    busy = {worker.pipe: worker for worker in hired if worker.call is not None}
    for worker in busy.values():
        worker.sample()
    ready = set(wait(list(busy), SAMPLE_SECONDS))
    return [worker for pipe, worker in busy.items() if pipe in ready]
