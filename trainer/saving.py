"""Save checkpoints while training continues: one save at a time, in a thread, by one process or by many.

A kept checkpoint stays. A rolling checkpoint has the identity that a kept one of its step would have, but is in a store below
the run's store (`.work`, which no listing of artifacts reads), and is deleted when a later checkpoint is committed.
The manifest is the commit, so a kill at any moment leaves the last whole checkpoint.

With several processes, each writes its arrays below `.work/parts/<run>/<attempt>` and then a small file that says they are
complete; the first process moves them into its own folder and commits. The processes synchronize through the storage and not
by a collective: a collective in a second thread would mix with those of the steps in another order on every host.
"""

import json
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace

import jax
import numpy as np
from jax.experimental import multihost_utils

from lineage.artifact.file_entries import file_entry
from lineage.artifact.manifest import FileEntry
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.jobs.job import Job
from lineage.shards.measure import Meter
from lineage.writing.commit import damage_of
from lineage.writing.working_folder import discard_working_folder, left_in
from lineage.writing.writer import Writer
from trainer.checkpoint import Snapshot, Tables, TrainState, snapshot, write_checkpoint
from trainer.faults import inject_fault
from trainer.records import Records
from trainer.running import Running
from trainer.spec.config import RunSpec
from trainer.spec.mesh import Layout
from trainer.spec.stage import step_partition

log = logging.getLogger("trainer")

KEEP_ROLLING = 2
"""Rolling checkpoints that are kept. Two, because the newest may be damaged (Marin lost 8,000 steps that way:
github.com/marin-community/marin/issues/5386)."""
PEER_SECONDS = 1800.0
"""Longest wait for another process."""
POLL_SECONDS, MOST_POLL_SECONDS = 0.05, 2.0
"""First and longest pause between two looks for a file of another process. 64 hosts that look every 0.05 s for four minutes
would make 190,000 requests to a bucket for one save (docs/design/scale.md)."""
SLOW_SECONDS = 1.0
"""A save that waits longer than this for the save before it is logged."""


def checkpoint_spec(final: ArtifactSpec, step: int) -> ArtifactSpec:
    """Identity of an earlier checkpoint of the same run; its partition is its step if the final partition is one."""
    by_step = final.partition == step_partition(int(final.config["step"]))
    return replace(
        final,
        partition=step_partition(step) if by_step else final.partition,
        config={**final.config, "step": step},
    )


def rolling_store(store: Store) -> Store:
    """The store for rolling checkpoints of the runs of a store."""
    return replace(store, root=f"{store.root.rstrip('/')}/.work/rolling", logged=False)


def saved_before(job: Job, last: int) -> list[Artifact]:
    """Every committed checkpoint of this run up to a step, kept and rolling, newest first."""
    rolling, kept = (_of_run(store, job.spec, last) for store in (rolling_store(job.store), job.store))
    by_step = {step_of(artifact): artifact for artifact in (*rolling, *kept)}  # the kept one wins
    return [by_step[step] for step in sorted(by_step, reverse=True)]


def step_of(checkpoint: Artifact) -> int:
    """Return the step of a checkpoint."""
    return int(checkpoint.spec.config["step"])


def _of_run(store: Store, final: ArtifactSpec, last: int) -> list[Artifact]:
    """The checkpoints of a run in a store up to a step, newest first, without those of other identities."""
    steps = [a for a in store.artifacts(*final.key) if isinstance(a.spec.config.get("step"), int) and step_of(a) <= last]
    own_steps = [a for a in steps if a.spec.address == checkpoint_spec(final, step_of(a)).address]
    return sorted(own_steps, key=step_of, reverse=True)


@dataclass
class Saver:
    """Writes the checkpoints of one attempt. Every process has one and calls it at the same steps."""

    job: Job
    spec: RunSpec
    layout: Layout
    running: Running
    start: Artifact | None
    cost: Meter
    how: Mapping[str, Mapping]
    """How the run is computed and on which mesh, for the record of a checkpoint."""
    attempt: str = field(default_factory=lambda: _same_everywhere(uuid.uuid4().int >> 66))
    last_rolling: float = field(default_factory=time.monotonic)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="saves"))
    pending: Future | None = None
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.job, self.attempt)
        self._drop_parts()

    def rolling_is_due(self) -> bool:
        """Whether a rolling checkpoint is due. Process 0's clock decides."""
        return jax.process_index() == 0 and time.monotonic() - self.last_rolling > self.running.rolling_seconds

    def save(self, state: TrainState, tables: Tables, throughput: Mapping, *, rolling: bool) -> None:
        """Copy a state to the host and start to write it. Waits for the previous save, and raises its error if it failed."""
        waited = time.monotonic()
        self.wait()
        if (waited := time.monotonic() - waited) > SLOW_SECONDS:
            log.warning("step %d waited %.1f s for the save before it; training is faster than the storage", state.step, waited)
        copied = snapshot(state)
        self.pending = self.pool.submit(self._write, copied, tables, dict(throughput), rolling)
        self.last_rolling = time.monotonic()

    def check(self) -> None:
        """Raise the error of the running save, if it has failed."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being written. Raises the error of a save that failed."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait for the running save, then end the thread."""
        try:
            self.wait()
        finally:
            self.pool.shutdown()

    def forget_rolling(self) -> None:
        """Delete the rolling checkpoints of this run, because its final one is committed."""
        if jax.process_index() == 0:
            for artifact in self._rolling():
                artifact.store.delete(artifact)
            for store in self._stores:
                store.storage.delete(self._all_parts)
            self._drop_scratch()

    def _drop_scratch(self) -> None:
        """Delete what a killed save left on this machine: a rolling save of that very step need not come again.

        Each is as large as the state. A folder that another attempt holds stays.
        """
        store = rolling_store(self.job.store)
        if not left_in(store):
            return
        for step in range(1, self.spec.num_steps + 1):
            discard_working_folder(store, checkpoint_spec(self.job.spec, step))

    def _write(self, state: Snapshot, tables: Tables, throughput: Mapping, rolling: bool) -> None:
        started = time.monotonic()
        job = replace(self.job, store=rolling_store(self.job.store)) if rolling else self.job
        target = checkpoint_spec(job.spec, state.step)
        if jax.process_index() > 0:
            self._hand_over(job.store, target, state)
            _until(lambda: job.store.find(target), f"{target.name} to be committed by the first process")
            return
        with job.writing(target, self.cost, replacing=_damaged(job.store, target)) as out:
            write_checkpoint(out, self.spec, state, tables, throughput, self.start, self.how)
            self._gather(out, target)
            inject_fault(self.running.faults, "save", state.step)
        if jax.process_count() > 1:
            job.store.storage.delete(self._parts(target))
        log.info(
            "saved step %d%s: %.1f MB in %.1f s, %s",
            state.step, " (rolling)" if rolling else "", state.nbytes / 1e6, time.monotonic() - started, out.artifact.uri,
        )  # fmt: skip
        for older in self._rolling()[KEEP_ROLLING if rolling else 0 :]:
            if step_of(older) <= state.step:
                older.store.delete(older)
        self.records.publish()

    def _rolling(self) -> list[Artifact]:
        return _of_run(rolling_store(self.job.store), self.job.spec, self.spec.num_steps)

    @property
    def _stores(self) -> tuple[Store, Store]:
        return self.job.store, rolling_store(self.job.store)

    @property
    def _all_parts(self) -> str:
        """Folder of the parts that all attempts of this run wrote."""
        return f".work/parts/{checkpoint_spec(self.job.spec, self.spec.num_steps).version}"

    def _parts(self, target: ArtifactSpec) -> str:
        return f"{self._all_parts}/{self.attempt}/{target.version}"

    def _drop_parts(self) -> None:
        """Delete the parts of earlier attempts that were killed before they committed; nothing else refers to them."""
        if jax.process_index() > 0:
            return
        for store in self._stores:
            for attempt in store.storage.folders(self._all_parts):
                if attempt != self.attempt:
                    log.info("deleting parts of a save that was never committed: %s/%s", self._all_parts, attempt)
                    store.storage.delete(f"{self._all_parts}/{attempt}")

    def _hand_over(self, store: Store, target: ArtifactSpec, state: Snapshot) -> None:
        """Publish this process's share of a save: its arrays, then the file that says they are complete."""
        index = jax.process_index()
        folder = store.scratch / "handing_over" / f"{target.version}.{index}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed attempt
        folder.mkdir(parents=True)
        state.save(folder)
        inject_fault(self.running.faults, "save", state.step)
        entries = [asdict(file_entry(folder, path)) for path in sorted(folder.iterdir())]
        store.storage.publish(folder, f"{self._parts(target)}/{index}")
        store.storage.create(f"{self._parts(target)}/{index}.json", json.dumps(entries))
        shutil.rmtree(folder, ignore_errors=True)  # a local root has moved it, a bucket has copied it

    def _gather(self, out: Writer, target: ArtifactSpec) -> None:
        """Add the other processes' arrays to the commit: moved on a local root, copied within the bucket on a remote one.

        No process holds another's arrays: those of a large run would neither pass through one host between two saves nor fit
        on its disk (docs/design/scale.md).
        """
        storage, parts = out.store.storage, self._parts(target)
        for index in range(1, jax.process_count()):
            listing = _until(
                lambda at=index: storage.read_text(f"{parts}/{at}.json"), f"process {index}'s part of {target.name}"
            )
            for entry in (FileEntry(**record) for record in json.loads(listing)):
                if storage.is_local:
                    (storage.local(f"{parts}/{index}") / entry.path).rename(out.folder / entry.path)
                else:
                    out.elsewhere[f"{parts}/{index}/{entry.path}"] = entry


def _damaged(store: Store, target: ArtifactSpec) -> Artifact | None:
    """A damaged checkpoint of the same step, to be replaced: this run could not read it and trained past it again."""
    there = store.find(target)
    damage = None if there is None else damage_of(there)
    if damage is None:
        return None
    log.warning("replacing the damaged %s: %s", target.name, damage)
    return there


def _until[T](look: Callable[[], T | None], what: str) -> T:
    """Call `look` until it returns something; return that. Raises: TimeoutError naming what did not appear."""
    deadline, pause = time.monotonic() + PEER_SECONDS, POLL_SECONDS
    while (result := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PEER_SECONDS:.0f} s for {what}")
        time.sleep(pause)
        pause = min(2 * pause, MOST_POLL_SECONDS)
    return result


def _same_everywhere(number: int) -> str:
    """The number of process 0, as hexadecimal text."""
    if jax.process_count() == 1:
        return f"{number & 0x7FFFFFFF:08x}"
    return f"{int(multihost_utils.broadcast_one_to_all(np.int32(number & 0x7FFFFFFF))):08x}"
