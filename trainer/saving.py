"""Saves while training goes on: one at a time, in a thread, by one process or by many; kept ones, and rolling ones between.

A rolling checkpoint has the identity that a kept one of its step would have, but lies in a store of its own below the run's
(`.work`, which no listing of artifacts looks at), and is deleted when a later one is committed. The manifest is the commit,
so a kill at any moment leaves the last checkpoint that was whole.

Of several processes each puts its arrays below `.work/parts/<run>/<attempt>` and says so in a small file; the first moves them
into its own folder and commits. They meet in the storage and not by a collective, because a collective in a thread of its own
would come in between those of the steps in another order on every host.
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
import polars as pl
from jax.experimental import multihost_utils

from lineage.commit import damage_of
from lineage.file_entries import file_entry
from lineage.jobs import Job
from lineage.manifest import FileEntry
from lineage.measure import Meter
from lineage.spec import ArtifactSpec
from lineage.store import Artifact, Store
from lineage.writer import Writer
from trainer.checkpoint import Snapshot, TrainState, snapshot, write_checkpoint
from trainer.config import RunSpec
from trainer.faults import strike
from trainer.mesh import Layout
from trainer.records import Records
from trainer.running import Running
from trainer.stage import step_partition

log = logging.getLogger("trainer")

KEEP_ROLLING = 2
"""A second one, because the newest may turn out damaged (Marin lost 8,000 steps to one: #5386)."""
PEER_SECONDS = 1800.0
POLL_SECONDS, MOST_POLL_SECONDS = 0.05, 2.0
"""Between looks for what another process is to bring: the first, and the longest. 64 hosts that looked every 0.05 s for four
minutes would ask a bucket 190,000 times a save (docs/design/scale.md)."""
SLOW_SECONDS = 1.0


def checkpoint_spec(final: ArtifactSpec, step: int) -> ArtifactSpec:
    """Identity of an earlier checkpoint of the same run; its partition follows the step unless the final's is no step."""
    by_step = final.partition == step_partition(int(final.config["step"]))
    return replace(
        final,
        partition=step_partition(step) if by_step else final.partition,
        config={**final.config, "step": step},
    )


def rolling_store(store: Store) -> Store:
    """Where a store's runs keep their rolling checkpoints."""
    return replace(store, root=f"{store.root.rstrip('/')}/.work/rolling")


def saved_before(job: Job, last: int) -> list[Artifact]:
    """Every whole checkpoint of this very run up to a step, kept and rolling, the newest first."""
    rolling, kept = (_of_run(store, job.spec, last) for store in (rolling_store(job.store), job.store))
    by_step = {step_of(artifact): artifact for artifact in (*rolling, *kept)}  # of one step the kept one
    return [by_step[step] for step in sorted(by_step, reverse=True)]


def step_of(checkpoint: Artifact) -> int:
    return int(checkpoint.spec.config["step"])


def _of_run(store: Store, final: ArtifactSpec, last: int) -> list[Artifact]:
    """The checkpoints of a run in a store up to a step, the newest first; of the run's other identities none."""
    found = [a for a in store.artifacts(*final.key) if isinstance(a.spec.config.get("step"), int) and step_of(a) <= last]
    mine = [a for a in found if a.spec.address == checkpoint_spec(final, step_of(a)).address]
    return sorted(mine, key=step_of, reverse=True)


@dataclass
class Saver:
    """Writes the checkpoints of one attempt. Every process has one, and calls it with the same steps."""

    job: Job
    spec: RunSpec
    layout: Layout
    running: Running
    start: Artifact | None
    cost: Meter
    how: Mapping[str, Mapping]
    """What a checkpoint's record says of how the run was computed, and on which mesh."""
    attempt: str = field(default_factory=lambda: _same_everywhere(uuid.uuid4().int >> 66))
    last_rolling: float = field(default_factory=time.monotonic)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="saves"))
    pending: Future | None = None
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.job, self.attempt)
        self._drop_parts()

    def rolling_is_due(self) -> bool:
        """By this process's clock; the first process's counts for all."""
        return jax.process_index() == 0 and time.monotonic() - self.last_rolling > self.running.rolling_seconds

    def save(self, state: TrainState, metrics: pl.DataFrame, throughput: Mapping, *, rolling: bool) -> None:
        """Copy a state and start to write it. It waits for the save before, and raises what made that one fail."""
        waited = time.monotonic()
        self.wait()
        if (waited := time.monotonic() - waited) > SLOW_SECONDS:
            log.warning("step %d waited %.1f s for the save before it; training is faster than the storage", state.step, waited)
        copied = snapshot(state)
        self.pending = self.pool.submit(self._write, copied, metrics, dict(throughput), rolling)
        self.last_rolling = time.monotonic()

    def check(self) -> None:
        """Raise what made the running save fail, if it has failed."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Until nothing is being written. Raises what made the save fail."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self.pool.shutdown()

    def forget_rolling(self) -> None:
        """Delete the rolling checkpoints of this run: its final one is there."""
        if jax.process_index() == 0:
            for artifact in self._rolling():
                artifact.store.delete(artifact)
            for store in self._stores:
                store.storage.delete(self._all_parts)

    def _write(self, state: Snapshot, metrics: pl.DataFrame, throughput: Mapping, rolling: bool) -> None:
        started = time.monotonic()
        job = replace(self.job, store=rolling_store(self.job.store)) if rolling else self.job
        target = checkpoint_spec(job.spec, state.step)
        if jax.process_index() > 0:
            self._hand_over(job.store, target, state)
            _until(lambda: job.store.find(target), f"{target.name} to be committed by the first process")
            return
        with job.writing(target, self.cost, replacing=_damaged(job.store, target)) as out:
            write_checkpoint(out, self.spec, state, metrics, throughput, self.start, self.how)
            self._gather(out, target)
            strike(self.running.faults, "save", state.step)
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
        """The parts of every attempt of this run."""
        return f".work/parts/{checkpoint_spec(self.job.spec, self.spec.num_steps).version}"

    def _parts(self, target: ArtifactSpec) -> str:
        return f"{self._all_parts}/{self.attempt}/{target.version}"

    def _drop_parts(self) -> None:
        """Parts that an attempt before this one handed over, and was killed before it committed: nobody else knows of them."""
        if jax.process_index() > 0:
            return
        for store in self._stores:
            for attempt in store.storage.folders(self._all_parts):
                if attempt != self.attempt:
                    log.info("parts of a save that was never committed are deleted: %s/%s", self._all_parts, attempt)
                    store.storage.delete(f"{self._all_parts}/{attempt}")

    def _hand_over(self, store: Store, target: ArtifactSpec, state: Snapshot) -> None:
        """Another process's share of a save: its arrays, then the file that says they are whole."""
        index = jax.process_index()
        folder = store.scratch / "handing_over" / f"{target.version}.{index}"
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was killed
        folder.mkdir(parents=True)
        state.save(folder)
        strike(self.running.faults, "save", state.step)
        entries = [asdict(file_entry(folder, path)) for path in sorted(folder.iterdir())]
        store.storage.publish(folder, f"{self._parts(target)}/{index}")
        store.storage.create(f"{self._parts(target)}/{index}.json", json.dumps(entries))
        shutil.rmtree(folder, ignore_errors=True)  # a local root has moved it, a bucket has copied it

    def _gather(self, out: Writer, target: ArtifactSpec) -> None:
        """Take the other processes' arrays into what is committed: moved on a local root, copied by a bucket within itself.

        No process ever holds another's arrays: those of a large run would neither pass through one host between two saves nor
        fit on its disk (docs/design/scale.md).
        """
        storage, parts = out.store.storage, self._parts(target)
        for index in range(1, jax.process_count()):
            told = _until(lambda at=index: storage.read_text(f"{parts}/{at}.json"), f"process {index}'s part of {target.name}")
            for entry in (FileEntry(**record) for record in json.loads(told)):
                if storage.is_local:
                    (storage.local(f"{parts}/{index}") / entry.path).rename(out.folder / entry.path)
                else:
                    out.elsewhere[f"{parts}/{index}/{entry.path}"] = entry


def _damaged(store: Store, target: ArtifactSpec) -> Artifact | None:
    """The checkpoint of that step that this run could not read and has trained past again; it must not stand in the way."""
    there = store.find(target)
    damage = None if there is None else damage_of(there)
    if damage is None:
        return None
    log.warning("%s is written again: %s", target.name, damage)
    return there


def _until[T](look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, asked again and again. Raises: TimeoutError naming what did not come."""
    deadline, pause = time.monotonic() + PEER_SECONDS, POLL_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PEER_SECONDS:.0f} s for {what}")
        time.sleep(pause)
        pause = min(2 * pause, MOST_POLL_SECONDS)
    return found


def _same_everywhere(number: int) -> str:
    """The first process's number, as text."""
    if jax.process_count() == 1:
        return f"{number & 0x7FFFFFFF:08x}"
    return f"{int(multihost_utils.broadcast_one_to_all(np.int32(number & 0x7FFFFFFF))):08x}"
