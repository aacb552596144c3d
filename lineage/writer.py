"""What a stage writes an artifact with: its folder, its shards and its workers, and what its manifest will say."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lineage.crew import Crew
from lineage.failures import IncompleteError, ShardFailure
from lineage.manifest import FileEntry
from lineage.shards import ShardFolder, ShardFunction, run_shards
from lineage.shared_shards import SharedShards
from lineage.spec import ArtifactSpec
from lineage.store import Artifact, Store

log = logging.getLogger(__name__)


@dataclass
class Writer:
    """Hands out the working folder of one artifact and gathers what its manifest will say."""

    store: Store
    spec: ArtifactSpec
    folder: Path
    statistics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Like `extra`, for what later stages read as they read files: it counts in the data version."""

    shard_names: set[str] = field(default_factory=set)
    """Every shard that the stage has asked for so far."""

    may_omit: Collection[str] = ()
    """Shards that failed before and that a waiver lets the artifact do without."""

    omitted: dict[str, str] = field(default_factory=dict)
    """Shards that were left out, by that waiver, and the errors they ended with."""

    waivers: list[Mapping[str, Any]] = field(default_factory=list)
    """What allows it: in the manifest if shards were left out."""

    elsewhere: dict[str, FileEntry] = field(default_factory=dict)
    """Files that are in the root already, by address: copied to their place at the commit (other processes of a gang put them
    there, and said what their bytes are)."""

    shared: SharedShards | None = None
    """Where other machines leave shards that they have finished (`lineage.shard_runner`)."""

    fan_out: Callable[[Collection[str]], Mapping[str, ShardFailure]] | None = None
    """Has shards done by runners elsewhere, which leave them in `shared`; what failed there (`lineage.fan_out`)."""

    crew: Crew = field(default_factory=Crew)
    """Who does the shards where there are several workers: the same processes from one map to the next."""

    adopted: bool = False

    committed: Artifact | None = None

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
    ) -> dict[str, Mapping[str, Any]]:
        """Run shards that survive a kill (see `lineage.shards`), with the store's worker count unless told; their statistics.

        They are begun in the order of `tasks`: with the largest first no worker waits for it at the end. `in_runs`: neighbours
        are of about one size and read the same, so each worker goes on behind its last one. `omittable`: the artifact means
        something without some of them (documents of a raw file that cannot be read), so a waiver may let it do without; what
        comes back then lacks their names. Raises: IncompleteError naming what failed, when every other shard is done.
        """
        self.shard_names |= tasks.keys()
        limits = self.store.limits.of_stage(self.spec.stage)
        folder = ShardFolder(self.folder, without=tuple(sorted(self.omitted)))
        self._take_shared(folder, tasks)
        elsewhere = self._fan_out(folder, tasks)
        ran = run_shards(
            folder,
            function,
            {name: arguments for name, arguments in tasks.items() if name not in elsewhere},
            workers=workers or self.store.workers,
            crew=self.crew,
            title=self.spec.name,
            limits=limits,
            in_runs=in_runs,
        )
        missing = tasks.keys() - ran.finished.keys()
        failures = (*elsewhere.values(), *ran.failures)
        if missing and not (omittable and missing <= set(self.may_omit)):
            raise IncompleteError(self.spec.name, failures, len(tasks), len(ran.finished))
        self.omitted |= {failure.name: failure.error for failure in failures}
        return dict(ran.finished)

    def warm(self, shards: int, function: Callable[..., object], *arguments: object) -> None:
        """Start the workers of a map of so many shards while the stage still plans, each with a call that its shards need."""
        workers = min(self.store.workers, shards)
        if workers > 1 and self.fan_out is None:
            self.crew.warm(workers, self.store.limits.of_stage(self.spec.stage).memory_bytes, (function, arguments))

    def map_calls(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]], workers: int | None = None
    ) -> list[Any]:
        """`function(*call)` of each, by the workers where there are several: what is too small for shards and leaves no files.

        Raises: what one raises, here or as a RuntimeError that quotes it; RuntimeError where a worker died.
        """
        count = workers or self.store.workers
        if min(count, len(calls)) <= 1:
            return [function(*call) for call in calls]
        return self.crew.map(function, calls, count, self.store.limits.of_stage(self.spec.stage).memory_bytes)

    @contextmanager
    def calling(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]]
    ) -> Iterator[Callable[[], list[Any]]]:
        """`map_calls` while the block goes on; it yields what gives the answers, or raises. One worker begins when asked."""
        if min(self.store.workers, len(calls)) <= 1:
            yield partial(self.map_calls, function, calls)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="calling") as thread:
            yield thread.submit(self.map_calls, function, calls).result

    def _fan_out(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> Mapping[str, ShardFailure]:
        """Have what is missing done by runners, where there are any; what they gave up.

        A map of one shard stays here: a machine for it would take longer to come than it saves. Runners see finished shards of
        earlier maps in the shared place alone, and know nothing of those that a waiver lets this artifact do without: what
        comes after such a one is done here.
        """
        missing = [name for name in sorted(tasks) if folder.finished(name) is None]
        if self.fan_out is None or self.shared is None or self.omitted or not missing or len(tasks) < 2:
            return {}
        for name in sorted(self.shard_names - self.shared.finished()):
            if folder.finished(name) is not None:
                self.shared.publish_copy(name, folder)
        failures = self.fan_out(missing)
        self._take_shared(folder, tasks)
        return {name: failure for name, failure in failures.items() if folder.finished(name) is None}

    def _take_shared(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> None:
        """Take over what runners on other machines have finished."""
        if self.shared is None:
            return
        there = {name for name in self.shared.finished() & tasks.keys() if folder.finished(name) is None}
        if there:
            log.info("%s: %d of %d shards were finished by other runners", self.spec.name, len(there), len(tasks))
            self.shared.fetch(there, folder, self.store.scratch)
            self.adopted = True


def adopt_shards(out: Writer, artifact: Artifact, besides: Collection[str] = ()) -> None:
    """Take the shards that an artifact lists as finished, but for some: copies of what they wrote."""
    folder = artifact.folder()
    for name, shard in artifact.manifest.shards.items():
        if name not in besides:
            ShardFolder(out.folder).adopt(name, {path: folder / path for path in shard.files}, shard.statistics)
