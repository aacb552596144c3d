"""The writer that a stage receives: its folder, shards and workers, and the content of its manifest."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lineage.artifact.later import fetch_named, files_later
from lineage.artifact.manifest import FileEntry
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.shards.away import AwayShards, named_paths
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError, ShardFailure
from lineage.shards.run import ShardFolder, ShardFunction, run_shards
from lineage.shards.shared import SharedShards
from lineage.shards.worker_pool import WorkerPool

log = logging.getLogger(__name__)


def _own_pool() -> Execution:
    return Execution(pool=WorkerPool())


@dataclass
class Writer:
    """The working folder of one artifact, and what its manifest will record."""

    store: Store
    spec: ArtifactSpec
    folder: Path
    execution: Execution = field(default_factory=_own_pool)
    statistics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Like `extra`, for values that later stages read like files: they count in the data version."""

    shard_names: set[str] = field(default_factory=set)
    """Names of all shards that the stage has run so far."""

    may_omit: Collection[str] = ()
    """Shards that failed before, and that a waiver allows to be missing."""

    omitted: dict[str, str] = field(default_factory=dict)
    """Shards that are missing by that waiver, with their errors."""

    waivers: list[Mapping[str, Any]] = field(default_factory=list)
    """The waivers that allow it; they are recorded in the manifest if shards are missing."""

    elsewhere: dict[str, FileEntry] = field(default_factory=dict)
    """Files that are in the root already, by address. The commit copies them to their place (other processes of a gang wrote
    and digested them)."""

    shared: SharedShards | None = None
    """The place where other machines publish finished shards (`lineage.build.shard_runner`)."""

    away: AwayShards = field(default_factory=AwayShards)
    """Shards that were finished there. The commit leaves their bytes to the storage, too."""

    fan_out: Callable[[Collection[str]], Mapping[str, ShardFailure]] | None = None
    """Runs shards by runners elsewhere, which publish them in `shared`; returns the failures (`lineage.build.fan_out`)."""

    adopted: bool = False

    fetches_inputs: bool = False
    """Whether tasks name files of inputs that are not here yet (`input_files`)."""

    committed: Artifact | None = None

    @property
    def pool(self) -> WorkerPool:
        """The worker processes that run shards when there are several workers: the same from one map to the next."""
        assert self.execution.pool is not None  # `writing` gives one
        return self.execution.pool

    @property
    def artifact(self) -> Artifact:
        """The artifact, once the `with` block has ended without an exception."""
        if self.committed is None:
            raise RuntimeError(f"{self.spec.name} is not committed yet")
        return self.committed

    def record(self, **statistics: object) -> None:
        """Statistics for the manifest.

        Known names: rows_in, rows_out, drops (mapping reason -> rows), bytes_in, bytes_out, tokens_in, tokens_out.
        """
        self.statistics.update(statistics)

    def map_shards(
        self,
        function: ShardFunction,
        tasks: Mapping[str, tuple[object, ...]],
        workers: int | None = None,
        *,
        omittable: bool = False,
        in_runs: bool = False,
        lazy: bool = False,
    ) -> dict[str, Mapping[str, Any]]:
        """Run shards that survive a kill (`lineage.shards.run`) and return their statistics by name.

        `workers` defaults to that of the execution. Shards start in the order of `tasks`; put the largest first, so that no
        worker waits for it at the end. `in_runs`: neighbours have about one size and read the same data, so each worker gets a
        run of them. `omittable`: the artifact is meaningful without some shards (documents of an unreadable raw file), so a
        waiver may allow them to be missing; the result then lacks their names. `lazy`: the stage reads no file of these shards
        but by the tasks of later maps, which name it or its folder, and by what it gives to `bring`. Then this process fetches
        none of them from machines that made them.

        Raises: IncompleteError naming the failed shards, after all others are done.
        """
        self.shard_names |= tasks.keys()
        limits = self.execution.limits.of_stage(self.spec.stage)
        folder = ShardFolder(self.folder, without=tuple(sorted(self.omitted)))
        self._take_shared(folder, tasks)
        elsewhere = self._fan_out(folder, tasks)
        there = self.away.shards
        here = {name: arguments for name, arguments in tasks.items() if name not in elsewhere and name not in there}
        if there or self.fetches_inputs:
            self.bring(*named_paths(self.folder, [task for name, task in here.items() if folder.finished(name) is None]))
        ran = run_shards(
            folder,
            function,
            here,
            workers=workers or self.execution.workers,
            pool=self.pool,
            title=self.spec.name,
            limits=limits,
            in_runs=in_runs,
        )
        done = {name: there[name].statistics if name in there else ran.finished.get(name) for name in sorted(tasks)}
        finished = {name: statistics for name, statistics in done.items() if statistics is not None}
        missing = tasks.keys() - finished.keys()
        failures = (*elsewhere.values(), *ran.failures)
        if missing and not (omittable and missing <= set(self.may_omit)):
            raise IncompleteError(self.spec.name, failures, len(tasks), len(finished))
        self.omitted |= {failure.name: failure.error for failure in failures}
        if not lazy:
            self.bring(*self._paths_away(tasks))
        return finished

    def bring(self, *paths: Path) -> None:
        """Fetch files of lazy maps that other machines have made, or all such files below a folder; and files of
        `input_files`. Others are passed over.

        Raises: ValueError naming a file that is not as its shard wrote it.
        """
        self.away.bring(self.store.storage, self.folder, paths)
        fetch_named(paths)

    def input_files(self, artifact: Artifact, suffix: str = "", under: str = "") -> list[Path]:
        """Return what `Artifact.files` returns; files of a remote input are fetched for the tasks that name them.

        What the stage reads itself it gives to `bring` first.
        """
        self.fetches_inputs |= not artifact.store.storage.is_local
        return files_later(artifact, suffix, under)

    def bytes_below(self, name: str) -> int:
        """Return the bytes of all files below a folder of the artifact, fetched or not."""
        here = {p.relative_to(self.folder).as_posix(): p.stat().st_size for p in (self.folder / name).rglob("*") if p.is_file()}
        away = {path: entry.bytes for path, (_, entry) in self.away.files.items() if path.startswith(f"{name}/")}
        return sum((away | here).values())

    def _paths_away(self, names: Collection[str]) -> list[Path]:
        """Return where the working folder has, or would have, the files of those of these shards that are away."""
        shards = [self.away.shards[name] for name in names if name in self.away.shards]
        return [self.folder / entry.path for shard in shards for entry in shard.files]

    def warm(self, shards: int, function: Callable[..., object], *arguments: object) -> None:
        """Start the workers for a map of `shards` shards early, each with a call that prepares for them."""
        workers = min(self.execution.workers, shards)
        if workers > 1 and self.fan_out is None:
            self.pool.warm(workers, self.execution.limits.of_stage(self.spec.stage).memory_bytes, (function, arguments))

    def map_calls(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]], workers: int | None = None
    ) -> list[Any]:
        """Return `function(*call)` of each call, by the workers if there are several. For work that is too small for shards.

        Raises: what a call raises, in this process or as a RuntimeError that quotes it; RuntimeError if a worker dies.
        """
        count = workers or self.execution.workers
        if min(count, len(calls)) <= 1:
            return [function(*call) for call in calls]
        return self.pool.map(function, calls, count, self.execution.limits.of_stage(self.spec.stage).memory_bytes)

    @contextmanager
    def calling(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]]
    ) -> Iterator[Callable[[], list[Any]]]:
        """Run `map_calls` during the block, and yield a function that returns its results. One worker starts when it is
        called."""
        if min(self.execution.workers, len(calls)) <= 1:
            yield partial(self.map_calls, function, calls)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="calling") as thread:
            yield thread.submit(self.map_calls, function, calls).result

    def _fan_out(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> Mapping[str, ShardFailure]:
        """Let runners do the missing shards, if there are runners. Returns those that failed.

        A map of one shard runs here: starting a machine takes longer than it saves. Runners see finished shards of earlier maps
        only in the shared place, and do not know which shards a waiver omits: maps after such a shard run here.
        """
        missing = [name for name in sorted(tasks) if not self._is_finished(name, folder)]
        if self.fan_out is None or self.shared is None or self.omitted or not missing or len(tasks) < 2:
            return {}
        for name in sorted(self.shard_names - self.shared.finished()):
            if folder.finished(name) is not None:
                self.shared.publish_copy(name, folder)
        failures = self.fan_out(missing)
        self._take_shared(folder, tasks)
        return {name: failure for name, failure in failures.items() if not self._is_finished(name, folder)}

    def _is_finished(self, name: str, folder: ShardFolder) -> bool:
        return name in self.away.shards or folder.finished(name) is not None

    def _take_shared(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> None:
        """Take shards that runners on other machines have finished; their files stay there.

        Runners do not know which shards a waiver omits, so later maps than those take nothing from them.
        """
        if self.shared is None or self.omitted:
            return
        there = {name for name in self.shared.finished() & tasks.keys() if not self._is_finished(name, folder)}
        if there:
            log.info("%s: %d of %d shards were finished by other runners", self.spec.name, len(there), len(tasks))
            self.away.take(self.shared, there)
            self.adopted = True


def adopt_shards(out: Writer, artifact: Artifact, besides: Collection[str] = ()) -> None:
    """Copy the shards that an artifact lists into the working folder as finished, except those in `besides`."""
    folder = artifact.folder()
    for name, shard in artifact.manifest.shards.items():
        if name not in besides:
            ShardFolder(out.folder).adopt(name, {path: folder / path for path in shard.files}, shard.statistics)
