"""A Ray engine whose cluster loses a machine in the middle of a shuffle."""

import importlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.ray_machines import RayMachines
from lineage.tables.ray_tasks import RayEngine
from lineage.tables.shuffle import Moved, Part, Shards, Shuffle

LOOK_SECONDS = 0.01
KILL_SECONDS = 60
BEGUN, WAITING = ".begun", ".waiting"


@dataclass
class LosingRay:
    """In one shuffle, kills the machine that has done a quarter of the reads, in its next one; starts another one after it."""

    machines: RayMachines
    running: list[Any]
    """Its machines (`RayMachines.add`); the killed one goes, the new one comes."""

    folder: Path
    """Where tasks leave a file each."""

    killed_in: str
    """Name of the shuffle."""

    again: int = 0
    """Reads that ran again, because the killed machine ran them or held their rows."""

    ray: RayEngine = field(init=False)

    def __post_init__(self) -> None:
        self.ray = RayEngine(self.machines.address)

    @property
    def moved(self) -> list[Moved]:
        return self.ray.moved

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Run a shuffle. Raises: RuntimeError if a machine should have been killed and no read ran again."""
        if step.name != self.killed_in:
            return self.ray.shuffle(out, step)
        self.folder.mkdir(parents=True)
        stop, read = threading.Event(), partial(marked, self.folder, len(step.tasks) // 4, step.read)
        thread = threading.Thread(target=self._kill, args=(stop,))
        thread.start()
        try:
            parts = self.ray.shuffle(out, replace(step, read=read))
        finally:
            stop.set()
            thread.join()
        self.again = len(list(self.folder.glob(f"*{BEGUN}"))) - len(step.tasks)
        if self.again < 1:
            raise RuntimeError(f"shuffle {step.name}: no read ran again, so no machine was killed in the middle")
        self.running.append(self.machines.add())
        return parts

    def table(self, out: Any, part: Part) -> Any:
        """Fetch one part."""
        return self.ray.table(out, part)

    def _kill(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for path in self.folder.glob(f"*{WAITING}"):
                victim = next(one for one in self.running if one.node_id == path.name.removesuffix(WAITING))
                self.running.remove(victim)
                self.machines.kill(victim)
                return
            time.sleep(LOOK_SECONDS)


def marked(folder: Path, before: int, read: Callable[..., pa.Table], *arguments: object) -> pa.Table:
    """Return the rows of one task. The first machine that has begun `before` others waits here to be killed."""
    node = importlib.import_module("ray").get_runtime_context().get_node_id()
    done = len(list(folder.glob(f"{node}.*{BEGUN}")))
    (folder / f"{node}.{uuid.uuid4().hex}{BEGUN}").touch()
    rows = read(*arguments)
    if done >= before and not list(folder.glob(f"*{WAITING}")):
        (folder / f"{node}{WAITING}").touch()
        time.sleep(KILL_SECONDS)
    return rows
