"""Several worker processes that outlive a map of shards: what they have imported and learnt is there for the next map.

A start costs .5 s of a core (imports), and each worker then learns what its stage keeps in memory (frequent words, tables). So
a crew keeps those that are idle, for the maps of one artifact or of all artifacts of one process (`Store.crew`). A worker that
dies is replaced; one that was started under another limit, environment or path is ended instead of being given a call.
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

from lineage.cores import own_core
from lineage.turns import Turns
from lineage.workers import Began, Call, Death, Raised, Warmed, Worker, told

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class _Circumstances:
    """What a process inherits when it is started, and what its calls may have read of it since."""

    memory_bytes: int | None
    folder: Path
    path: tuple[str, ...]
    environment: Mapping[str, str]

    @staticmethod
    def now(memory_bytes: int | None) -> "_Circumstances":
        return _Circumstances(memory_bytes, Path.cwd(), tuple(sys.path), dict(os.environ))


@dataclass(eq=False)
class Crew:
    """Idle workers, each with the circumstances that it was started in. No process is started before there is work.

    Use it as a context: at its end the workers are ended. Without that they end with this process, whatever ends it.
    """

    idle: list[tuple[_Circumstances, Worker]] = field(default_factory=list)
    started: list[Worker] = field(default_factory=list)
    """Idle ones and those of maps that run; some may have ended."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the idle workers. Maps that run end their own."""
        while self.idle:
            self.idle.pop()[1].end()

    def warm(self, workers: int, memory_bytes: int | None, call: Call) -> None:
        """Have so many idle workers, and give each something to do that the next calls will need. Does not wait for it."""
        now = _Circumstances.now(memory_bytes)
        hired = [self._hire(now, workers) for _ in range(workers)]
        for worker in hired:
            worker.warm(call)
        with self.lock:
            self.idle += [(now, worker) for worker in hired]

    def run(
        self, calls: Mapping[str, Call], workers: int, memory_bytes: int | None, *, in_runs: bool = False
    ) -> Iterator[tuple[str, object]]:
        """Run every call in one of so many workers: (name, what it returned or the Death of its worker) as they end.

        Calls are started in their order, or `in_runs`, so that neighbours fall to one worker (`Turns`). A call returns what can
        be pickled and raises nothing. `memory_bytes` bounds the data of one worker. As many workers as cores keep to one each.
        """
        now = _Circumstances.now(memory_bytes)
        turns, unbegun = Turns(calls, in_runs=in_runs), len(calls)
        hired: list[Worker] = []
        try:
            while unbegun or any(worker.call for worker in hired):
                while unbegun and len(hired) < min(workers, len(calls)):
                    hired.append(self._hire(now, workers))
                for worker in hired:
                    if worker.call is None and (name := turns.next(worker)) is not None:
                        unbegun -= 1
                        worker.start(name, calls[name])
                for worker in _ready(hired):
                    name, answer = worker.call, worker.answer()
                    if isinstance(answer, Warmed) and answer.error:
                        log.warning("a worker could not prepare for its calls: %s", answer.error)
                    if isinstance(answer, Began | Warmed):
                        continue
                    worker.call = None
                    if isinstance(answer, Death):
                        hired.remove(worker)
                        worker.end()
                    assert name is not None  # only workers with a call are waited for
                    yield name, answer
        finally:
            self._dismiss(now, hired)

    def map(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]], workers: int, memory_bytes: int | None
    ) -> list[object]:
        """`function(*call)` of each, in their order.

        Raises: RuntimeError that quotes what the first that failed raised, or says how its worker died.
        """
        named: dict[str, Call] = {f"{i}": (told, (function, call)) for i, call in enumerate(calls)}
        answers = dict(self.run(named, workers, memory_bytes))
        for name in named:
            if isinstance(answer := answers[name], Raised | Death):
                raise RuntimeError(f"{function.__name__}, call {name} of {len(calls)}: {answer}")
        return [answers[name] for name in named]

    def _hire(self, now: _Circumstances, workers: int) -> Worker:
        """An idle worker that lives and was started in these circumstances, or a new one, of so many."""
        while True:
            with self.lock:
                if not self.idle:
                    self.started = [worker for worker in self.started if worker.process.poll() is None]
                    core = own_core(workers, [worker.core for worker in self.started])
                    if core is not None and not self.started:
                        log.info("%d workers, as many as cores or more: each keeps to one core", workers)
                    self.started.append(Worker(now.memory_bytes, core))
                    return self.started[-1]
                circumstances, worker = self.idle.pop(0)
            if circumstances == now and worker.process.poll() is None:
                return worker
            worker.end()

    def _dismiss(self, now: _Circumstances, hired: Sequence[Worker]) -> None:
        """Keep those that are idle, end those that are at a call which nobody waits for."""
        for worker in hired:
            if worker.call is not None:
                worker.end()
        with self.lock:
            self.idle += [(now, worker) for worker in hired if worker.call is None]


def _ready(hired: Sequence[Worker]) -> list[Worker]:
    """Workers whose call has ended, or none after a while; looks at everybody's memory."""
    busy = {worker.pipe: worker for worker in hired if worker.call is not None}
    for worker in busy.values():
        worker.sample()
    ready = set(wait(list(busy), SAMPLE_SECONDS))
    return [worker for pipe, worker in busy.items() if pipe in ready]
