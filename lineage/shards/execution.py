"""How this process runs the work of a stage: the number of workers, the limits of a shard, and the pool of processes.

None of this is part of an identity: artifacts hold the same bytes under every `Execution`.
"""

from dataclasses import dataclass, field
from typing import Any

from lineage.shards.run import DEFAULT_LIMITS, ShardLimits
from lineage.shards.worker_pool import WorkerPool
from lineage.tables.shuffle import TableEngine


@dataclass(frozen=True)
class Execution:
    """How shards run: `workers` processes under `limits`."""

    workers: int = 1
    limits: ShardLimits = DEFAULT_LIMITS
    pool: WorkerPool | None = field(default=None, compare=False, repr=False)
    """Worker processes that all artifacts of this process share. None: each artifact starts and ends its own."""

    tables: TableEngine | None = field(default=None, compare=False, repr=False)
    """The engine of shuffles (`lineage.tables`). None: this machine's workers."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"execution.workers is {self.workers}; it must be at least 1")

    def __getstate__(self) -> dict[str, Any]:
        """Leave pool and engine out when pickled: they belong to this process."""
        return {**self.__dict__, "pool": None, "tables": None}


ONE_WORKER = Execution()
