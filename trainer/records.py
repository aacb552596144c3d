"""Copy what trackers and the profiler write in a job's folder to a remote root.

The scratch folder of a pod is deleted with the pod. The Parquet metrics of a checkpoint hold loss, learning rate, norms and
tokens of every step; throughput, memory, scores of held-out texts and the norm of every weight are only in `metrics.jsonl`. So
all of it is copied after every save and at the end of the attempt, to `.work/records/<key>/<version>/<attempt>`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jax

from lineage.jobs.job import Job, job_folder

log = logging.getLogger("trainer")

KEPT = ("metrics.jsonl", "tensorboard", "wandb", "profile")


@dataclass
class Records:
    """The files of one attempt. Only the first process has them."""

    job: Job
    attempt: str
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and modification time of each file when it was last copied."""

    @property
    def address(self) -> str:
        return "/".join((".work/records", *self.job.spec.key, self.job.spec.version, self.attempt))

    def publish(self) -> None:
        """Copy the files that changed. A failure is logged and tried again at the next call; training continues."""
        if self.job.store.storage.is_local or jax.process_index() > 0:
            return
        try:
            for name, path in self._files():
                facts = path.stat()
                if self.sent.get(name) != (facts.st_size, facts.st_mtime_ns):
                    self.job.store.storage.replace(f"{self.address}/{name}", path.read_bytes())
                    self.sent[name] = facts.st_size, facts.st_mtime_ns
        except Exception as error:  # storages raise errors of their own types
            log.error("metrics and traces were not copied to %s: %s", self.job.store.storage.uri(self.address), error)

    def _files(self) -> Iterator[tuple[str, Path]]:
        folder = job_folder(self.job)
        for kept in KEPT:
            for path in sorted([folder / kept, *(folder / kept).rglob("*")]):
                if path.is_file():
                    yield path.relative_to(folder).as_posix(), path
