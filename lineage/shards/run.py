"""Work inside one artifact, split into shards that survive a kill.

A shard is a function that fills a private folder and returns statistics. When it returns, its files move into the
artifact's working folder and a small manifest is written last; on the next attempt finished shards are reused and said so.
Files of different shards must have different names, so results cannot depend on order or on the number of workers.

A shard that fails is tried again if that may help, else it is reported as a failure; the others go on
(docs/design/incomplete.md).
"""

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lineage.artifact.file_entries import file_entry, sync_file
from lineage.artifact.manifest import FileEntry
from lineage.progress import track
from lineage.shards.failures import DiskFullError, ShardFailure, failure_of, kind_of
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Call, WorkerDied, peak_rss_bytes
from lineage.storage.digests import Digested

log = logging.getLogger(__name__)

SHARD_FOLDER = ".shards"
SCRATCH_FOLDER = ".scratch"
"""Below a writer's folder: intermediate files that shards leave for a later step. They are not committed."""

PARTIAL_SUFFIX = ".partial"
DIGESTED = "digested"
"""Name among a shard's statistics, where it returns `Digested` of files by their names below its folder: files that it digested
while it wrote them. They are no statistics and not recorded as such."""

type ShardFunction = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class ShardLimits:
    """How shards are run, never what they write: no part of any identity."""

    attempts: int = 2
    """Tries of a shard whose failure may pass (a connection, a killed worker); others are tried once."""
    max_failures: int = 10
    """After this number of failed shards the stage starts no more: the cause is the stage or its input, not single shards."""
    memory_bytes: int | None = None
    """Data that one worker process may hold. With a limit, even a single shard runs in a worker. None: no limit."""
    memory_bytes_of: Mapping[str, int] = field(default_factory=dict)
    """The same for single stages, by stage name."""

    def __post_init__(self) -> None:
        for name in ("attempts", "max_failures"):
            if getattr(self, name) < 1:
                raise ValueError(f"shard limit {name} is {getattr(self, name)}; it must be at least 1")
        for name, value in {"memory_bytes": self.memory_bytes, **self.memory_bytes_of}.items():
            if value is not None and value < 64 << 20:
                raise ValueError(f"shard limit {name} is {value} bytes; a Python worker needs 64 MiB before it does anything")

    def of_stage(self, stage: str) -> "ShardLimits":
        """Return the limits for one stage."""
        return replace(self, memory_bytes=self.memory_bytes_of.get(stage, self.memory_bytes), memory_bytes_of={})


DEFAULT_LIMITS = ShardLimits()


@dataclass(frozen=True)
class Written:
    """A file that a shard wrote: its entry, taken by the process that wrote it, and the time of its last change."""

    entry: FileEntry
    mtime_ns: int

    def is_untouched(self, root: Path) -> bool:
        """Whether the file is still as the shard left it."""
        path = root / self.entry.path
        return path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (self.entry.bytes, self.mtime_ns)


@dataclass(frozen=True)
class ShardFolder:
    """The working folder of one artifact: finished files and the records of finished shards."""

    root: Path
    without: tuple[str, ...] = ()
    """Shards of earlier maps that were left out. A shard that was made without other ones is not reused (a merge of fewer
    parts)."""

    def finished(self, name: str) -> Mapping[str, Any] | None:
        """Return the statistics of a finished shard, or None. A shard whose files are not all present counts as unfinished."""
        record_path = self._record(name)
        if not record_path.exists():
            return None
        record = json.loads(record_path.read_text())
        if tuple(record.get("without", ())) != self.without:
            return None
        whole = all(
            (self.root / path).is_file() and (self.root / path).stat().st_size == size for path, size in record["files"].items()
        )
        return record["statistics"] if whole else None

    def run(self, name: str, function: ShardFunction, arguments: tuple[object, ...]) -> Mapping[str, Any]:
        """Run one shard in a private folder and commit what it wrote. A shard that raises leaves nothing.

        Raises: DiskFullError if the disk is full; what the function raises.
        """
        private = self.root / SHARD_FOLDER / f"{name}.{uuid.uuid4().hex[:8]}{PARTIAL_SUFFIX}"
        private.mkdir(parents=True)
        try:
            statistics, digested = split_digested(function(private, *arguments))
            files, written = self._take(private, digested)
            self._write_record(name, files, statistics, written)
        except Exception as error:
            if kind_of(error) == "disk":
                raise disk_full(error, f"shard {name}", private) from error
            raise
        finally:
            shutil.rmtree(private, ignore_errors=True)  # another attempt may need the space
        return statistics

    def adopt(
        self,
        name: str,
        files: Mapping[str, Path],
        statistics: Mapping[str, Any],
        place: Callable[[Path, Path], object] = shutil.copyfile,
    ) -> None:
        """Record a shard as finished and copy its files from elsewhere: name below the folder -> file."""
        for relative, path in files.items():
            (self.root / relative).parent.mkdir(parents=True, exist_ok=True)
            place(path, self.root / relative)
        self._write_record(name, {relative: path.stat().st_size for relative, path in files.items()}, statistics)

    def records(self, names: Iterable[str]) -> dict[str, tuple[list[str], Mapping[str, Any]]]:
        """Return files and statistics of finished shards by name, without those that were made without other shards.

        Raises: ValueError naming a file that two of them wrote.
        """
        records = {name: json.loads(self._record(name).read_text()) for name in sorted(names) if self._record(name).exists()}
        refuse_two_owners({name: record["files"] for name, record in records.items()})
        whole = {name: record for name, record in records.items() if not record.get("without")}
        return {name: (sorted(record["files"]), record["statistics"]) for name, record in whole.items()}

    def written(self, names: Iterable[str]) -> dict[str, FileEntry]:
        """Return the entries of files that finished shards wrote and nobody has changed since, by path."""
        records = [json.loads(self._record(name).read_text()) for name in names if self._record(name).exists()]
        files = [Written(FileEntry(**one["entry"]), one["mtime_ns"]) for record in records for one in record["written"]]
        return {one.entry.path: one.entry for one in files if one.is_untouched(self.root)}

    def _take(self, private: Path, digested: Mapping[str, Digested]) -> tuple[dict[str, int], list[Written]]:
        """Move a shard's files to their places; return their sizes, and the entries of those that may be committed.

        Those that are read are still in the page cache of this machine. Nothing names the digest of a scratch file, so it is
        not read.
        """
        files, written = dict[str, int](), list[Written]()
        for path in sorted(p for p in private.rglob("*") if p.is_file()):
            name = path.relative_to(private).as_posix()
            if name.startswith(f"{SCRATCH_FOLDER}/"):
                sync_file(path)
            else:
                written.append(Written(file_entry(private, path, digested.get(name)), path.stat().st_mtime_ns))
            files[name] = path.stat().st_size
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.root / name)
        return files, written

    def _write_record(
        self, name: str, files: Mapping[str, int], statistics: Mapping[str, Any], written: Sequence[Written] = ()
    ) -> None:
        self._record(name).parent.mkdir(parents=True, exist_ok=True)
        scratch = self._record(name).with_suffix(".tmp")
        without = {"without": self.without} if self.without else {}
        record = {"files": dict(files), "statistics": dict(statistics), "written": [asdict(one) for one in written], **without}
        scratch.write_text(json.dumps(record))
        sync_file(scratch)
        scratch.replace(self._record(name))

    def _record(self, name: str) -> Path:
        return self.root / SHARD_FOLDER / f"{name}.json"


def refuse_two_owners(files: Mapping[str, Iterable[str]]) -> None:
    """Raises: ValueError naming a file that two shards wrote; `files` are those of each shard."""
    owners: dict[str, str] = {}
    for name in sorted(files):
        for path in files[name]:
            if owners.setdefault(path, name) != name:
                raise ValueError(f"shards {owners[path]} and {name} both wrote {path}; what it holds would depend on order")


def split_digested(returned: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Digested]]:
    """Return the statistics that a shard function returned, and what it digested while it wrote it."""
    statistics = dict(returned)
    return statistics, statistics.pop(DIGESTED, {})


@dataclass(frozen=True)
class ShardsRun:
    """The outcome of a run of shards: statistics of finished ones and failures of the others, each in name order."""

    finished: Mapping[str, Mapping[str, Any]]
    failures: tuple[ShardFailure, ...]


def run_shards(
    folder: ShardFolder,
    function: ShardFunction,
    tasks: Mapping[str, tuple[object, ...]],
    *,
    workers: int,
    pool: WorkerPool,
    title: str,
    limits: ShardLimits = DEFAULT_LIMITS,
    in_runs: bool = False,
) -> ShardsRun:
    """Run `function(private_folder, *tasks[name])` for every unfinished shard, started in the order of `tasks`.

    With `in_runs`, each worker gets a run of neighbours. If `workers` > 1, `function` must be a module-level function, because
    it is pickled. A shard that fails becomes a failure in the result, and the others go on. Raises: DiskFullError.
    """
    finished = {name: statistics for name in tasks if (statistics := folder.finished(name)) is not None}
    if finished:
        log.info("%s: %d of %d shards were finished earlier and are reused", title, len(finished), len(tasks))
    failures: dict[str, ShardFailure] = {}
    todo = [name for name in tasks if name not in finished]
    for attempt in range(1, limits.attempts + 1):
        alone = any(failures[name].kind == "memory" for name in todo if name in failures)
        if failures:
            pool.end()  # new workers: an idle one may still hold memory
            log.warning("%s: %d failed shards are tried again%s", title, len(todo), ", one at a time" if alone else "")
        attempts = _attempts(folder, function, tasks, todo, 1 if alone else workers, pool, title, limits, in_runs)
        for name, outcome in attempts:
            if isinstance(outcome, ShardFailure):
                failures[name] = replace(outcome, attempts=attempt)
                log.warning("%s: shard %s failed (%s): %s", title, name, outcome.kind, outcome.error)
                if outcome.kind == "disk":
                    raise DiskFullError(outcome.error)
                if len(failures) >= limits.max_failures:
                    break
            else:
                finished[name] = outcome
                failures.pop(name, None)
        todo = [name for name in sorted(failures) if failures[name].kind != "permanent"]
        if not todo or len(failures) >= limits.max_failures:
            break
    return ShardsRun({name: finished[name] for name in sorted(finished)}, tuple(failures[name] for name in sorted(failures)))


def _attempts(
    folder: ShardFolder,
    function: ShardFunction,
    tasks: Mapping[str, tuple[object, ...]],
    names: Collection[str],
    workers: int,
    pool: WorkerPool,
    title: str,
    limits: ShardLimits,
    in_runs: bool,
) -> Iterator[tuple[str, Mapping[str, Any] | ShardFailure]]:
    """Run every shard once and yield outcomes as they end; in this process if workers would gain nothing."""
    if limits.memory_bytes is None and (workers <= 1 or len(names) <= 1):
        for name in track(names, title, len(names)):
            yield name, _attempt(folder, name, function, tasks[name])
        return
    calls: dict[str, Call] = {name: (_attempt, (folder, name, function, tasks[name])) for name in names}
    answers = pool.run(calls, workers, limits.memory_bytes, in_runs=in_runs)
    for name, answer in track(answers, title, len(names)):
        if isinstance(answer, WorkerDied):
            answer = _dead(name, answer, tasks[name])
        assert isinstance(answer, Mapping | ShardFailure)  # what _attempt returns
        yield name, answer


def _attempt(
    folder: ShardFolder, name: str, function: ShardFunction, arguments: tuple[object, ...]
) -> Mapping[str, Any] | ShardFailure:
    """Run a shard in this process; an exception becomes a failure."""
    try:
        return folder.run(name, function, arguments)
    except Exception as error:
        return failure_of(name, error, arguments, peak_rss_bytes(os.getpid()))


def _dead(name: str, death: WorkerDied, arguments: tuple[object, ...]) -> ShardFailure:
    lost = RuntimeError(str(death))
    return replace(
        failure_of(name, lost, arguments, death.peak_rss_bytes),
        kind="memory" if death.by_memory else "killed",
        error=str(death),
        traceback="the worker left none",
    )


def disk_full(error: Exception, what: str, where: Path) -> DiskFullError:
    """Return an error that says how much was written and how much is free; an error that says so already is returned as it
    is."""
    if isinstance(error, DiskFullError):
        return error
    written = sum(path.stat().st_size for path in where.rglob("*") if path.is_file()) if where.exists() else 0
    free = shutil.disk_usage(next(folder for folder in (where, *where.parents) if folder.exists())).free
    return DiskFullError(
        f"no room for {what} below {where} ({error}): it had written {written:,} bytes and needs more, {free:,} bytes are free "
        "there; make room and materialize again, finished shards are kept"
    )
