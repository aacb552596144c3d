"""Work inside one artifact, split into shards that survive a kill.

A shard is a function that fills a private folder and returns statistics. When it returns, its files move into the
artifact's working folder and a small manifest is written last; on the next attempt finished shards are reused and said so.
Files of different shards must have different names, so results cannot depend on order or on the number of workers.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from lineage.progress import track

log = logging.getLogger(__name__)

SHARD_FOLDER = ".shards"
type ShardFunction = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class ShardFolder:
    """The working folder of one artifact: its finished files and the records of finished shards."""

    root: Path

    def finished(self, name: str) -> Mapping[str, Any] | None:
        """Statistics of a finished shard, or None; a record whose files are not all there counts as unfinished."""
        record_path = self._record(name)
        if not record_path.exists():
            return None
        record = json.loads(record_path.read_text())
        whole = all(
            (self.root / path).is_file() and (self.root / path).stat().st_size == size for path, size in record["files"].items()
        )
        return record["statistics"] if whole else None

    def run(self, name: str, function: ShardFunction, arguments: tuple[object, ...]) -> Mapping[str, Any]:
        """Run one shard in a private folder and commit what it wrote."""
        private = self.root / SHARD_FOLDER / f"{name}.partial"
        if private.exists():
            shutil.rmtree(private)
        private.mkdir(parents=True)
        statistics = function(private, *arguments)
        files = {}
        for path in sorted(p for p in private.rglob("*") if p.is_file()):
            relative = path.relative_to(private).as_posix()
            files[relative] = path.stat().st_size
            sync_file(path)
            (self.root / relative).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.root / relative)
        shutil.rmtree(private)
        self._write_record(name, files, statistics)
        return statistics

    def adopt(self, name: str, files: Mapping[str, Path], statistics: Mapping[str, Any]) -> None:
        """Take a shard as finished whose files are copied from elsewhere: name below the folder -> file."""
        for relative, path in files.items():
            (self.root / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.root / relative)
        self._write_record(name, {relative: path.stat().st_size for relative, path in files.items()}, statistics)

    def records(self, names: Iterable[str]) -> dict[str, tuple[list[str], Mapping[str, Any]]]:
        """Files and statistics of finished shards, by name."""
        found = {name: json.loads(self._record(name).read_text()) for name in sorted(names) if self._record(name).exists()}
        return {name: (sorted(record["files"]), record["statistics"]) for name, record in found.items()}

    def _write_record(self, name: str, files: Mapping[str, int], statistics: Mapping[str, Any]) -> None:
        self._record(name).parent.mkdir(parents=True, exist_ok=True)
        scratch = self._record(name).with_suffix(".tmp")
        scratch.write_text(json.dumps({"files": dict(files), "statistics": dict(statistics)}))
        sync_file(scratch)
        scratch.replace(self._record(name))

    def _record(self, name: str) -> Path:
        return self.root / SHARD_FOLDER / f"{name}.json"


def map_shards(
    folder: ShardFolder, function: ShardFunction, tasks: Mapping[str, tuple[object, ...]], *, workers: int, title: str
) -> dict[str, Mapping[str, Any]]:
    """Run `function(private_folder, *tasks[name])` for every unfinished shard; statistics by shard name, in name order.

    `function` is a module-level function when `workers` > 1 (it crosses a process border). An exception in one shard ends
    the stage after the shards already running; those that finished stay finished.
    """
    results = {name: statistics for name in tasks if (statistics := folder.finished(name)) is not None}
    if results:
        log.info("%s: %d of %d shards were finished earlier and are reused", title, len(results), len(tasks))
    pending = [name for name in sorted(tasks) if name not in results]
    for name, statistics in _results(folder, function, tasks, pending, workers, title):
        results[name] = statistics
    return {name: results[name] for name in sorted(results)}


def _results(
    folder: ShardFolder,
    function: ShardFunction,
    tasks: Mapping[str, tuple[object, ...]],
    pending: list[str],
    workers: int,
    title: str,
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if workers <= 1 or len(pending) <= 1:
        for name in track(pending, title, len(pending)):
            yield name, folder.run(name, function, tasks[name])
        return
    others = active_children()
    with ProcessPoolExecutor(min(workers, len(pending)), mp_context=get_context("forkserver")) as pool:
        futures = {pool.submit(folder.run, name, function, tasks[name]): name for name in pending}
        pool_workers = [process for process in active_children() if process not in others]
        try:
            for future in track(as_completed(futures), title, len(futures)):
                yield futures[future], future.result()
        except BrokenProcessPool:
            # The pool has sent SIGTERM and waits for its workers' end. Workers of a background job ignore it: the job ignores
            # SIGINT, and Dagster (1.13, _utils/interrupts.py) gives SIGTERM the same handler. Without this the stage hangs.
            for process in pool_workers:
                process.kill()
            raise
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
