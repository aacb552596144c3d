"""A local engine that loses one of its workers in the middle of a shuffle."""

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage.shards.run import SHARD_FOLDER
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Worker
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Moved, Part, Shards, Shuffle

LOOK_SECONDS = 0.002


@dataclass
class LosingLocal:
    """Kills one worker, in the named shuffle."""

    local: LocalEngine
    pool: WorkerPool
    killed_in: str
    lost: str | None = None
    """What the killed worker ran."""

    kept: int = 0
    """Shards that were finished then."""

    @property
    def moved(self) -> list[Moved]:
        return self.local.moved

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Run a shuffle, and kill a worker if it is the named one.

        Raises: RuntimeError if a shard that was finished at the kill ran again.
        """
        if step.name != self.killed_in:
            return self.local.shuffle(out, step)
        stop, finished = threading.Event(), dict[Path, int]()
        thread = threading.Thread(target=self._kill, args=(out.folder / SHARD_FOLDER, step.name, stop, finished))
        thread.start()
        try:
            parts = self.local.shuffle(out, step)
        finally:
            stop.set()
            thread.join()
        again = [path.stem for path, written in finished.items() if path.stat().st_mtime_ns != written]
        if again:
            raise RuntimeError(f"shuffle {step.name}: shards were finished when {self.lost} was killed and ran again: {again}")
        return parts

    def table(self, out: Any, part: Part) -> Any:
        """Map one part."""
        return self.local.table(out, part)

    def _kill(self, folder: Path, step: str, stop: threading.Event, finished: dict[Path, int]) -> None:
        while not stop.is_set():
            if (worker := self._busy(step)) is not None:
                finished |= {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
                self.lost, self.kept = worker.call, len(finished)
                os.kill(worker.process.pid, signal.SIGKILL)
                return
            time.sleep(LOOK_SECONDS)

    def _busy(self, step: str) -> Worker | None:
        """Return a worker that runs a shard of the shuffle."""
        return next((worker for worker in self.pool.started if (worker.call or "").startswith(f"{step}-")), None)
