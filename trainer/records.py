"""What trackers and the profiler leave in a job's folder, copied to a root that is not on this machine.

A pod's scratch folder is gone with the pod. The Parquet metrics of a checkpoint hold loss, rate, norms and tokens of every
step; throughput, memory, scores of held-out texts and the norms of every weight are in `metrics.jsonl` alone, so all of it is
copied: after every save, and when the attempt ends. Each attempt has its folder, `.work/records/<key>/<version>/<attempt>`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jax

from lineage.jobs import Job, job_folder

log = logging.getLogger("trainer")

KEPT = ("metrics.jsonl", "tensorboard", "wandb", "profile")


@dataclass
class Records:
    """Of one attempt; the first process has them."""

    job: Job
    attempt: str
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of each file as it was copied last."""

    @property
    def address(self) -> str:
        return "/".join((".work/records", *self.job.spec.key, self.job.spec.version, self.attempt))

    def publish(self) -> None:
        """Copy what has changed. Where that fails it is said, and tried again the next time: it is no reason to stop."""
        if self.job.store.storage.is_local or jax.process_index() > 0:
            return
        try:
            for name, path in self._files():
                facts = path.stat()
                if self.sent.get(name) != (facts.st_size, facts.st_mtime_ns):
                    self.job.store.storage.replace(f"{self.address}/{name}", path.read_bytes())
                    self.sent[name] = facts.st_size, facts.st_mtime_ns
        except Exception as error:  # any storage's own error
            log.error("metrics and traces were not copied to %s: %s", self.job.store.storage.uri(self.address), error)

    def _files(self) -> Iterator[tuple[str, Path]]:
        folder = job_folder(self.job)
        for kept in KEPT:
            for path in sorted([folder / kept, *(folder / kept).rglob("*")]):
                if path.is_file():
                    yield path.relative_to(folder).as_posix(), path
