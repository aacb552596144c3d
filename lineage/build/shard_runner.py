"""Run some shards of one artifact in a process of their own: on one of many machines, or a single shard to debug it.

    python -m lineage.build.shard_runner datakit.documents.normalize job.json --index 3 --count 16   # shards 3, 19, 35, ...
    python -m lineage.build.shard_runner datakit.documents.normalize job.json --only parse-00003     # one, with its traceback

In a Kubernetes Indexed Job (`lineage.build.fan_out` launches them) the index is JOB_COMPLETION_INDEX. The stage's own function
runs with a writer that does this runner's share of the shards, publishes them where all machines can read them
(`lineage.shards.shared`), and stops. Materializing the artifact takes the published shards, does the missing ones, and commits.
A stage with several maps of shards (parse, then merge) needs one round of runners for each: a round does the first map that is
not finished.
"""

import argparse
import importlib
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lineage.build.reproduce import read_config
from lineage.jobs.job import Job, read_job
from lineage.shards.away import named_paths
from lineage.shards.failures import IncompleteError
from lineage.shards.run import SHARD_FOLDER, ShardFolder, ShardFunction, run_shards
from lineage.shards.shared import SharedShards, run_and_publish
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import peak_rss_bytes
from lineage.stage import Stage
from lineage.trust.fingerprint import stage_code
from lineage.writing.working_folder import try_lock
from lineage.writing.write import code_id
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

SHARE_FOLDER = ".share"
NOT_YET = 75
"""Exit status (EX_TEMPFAIL) of a runner that has nothing to do until others have finished their shards."""


@dataclass(frozen=True)
class Share:
    """Every `count`-th shard from `index` on in name order, or a run of neighbours of that size if the stage asks for runs;
    or `only` one, in the foreground."""

    index: int = 0
    count: int = 1
    only: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"runner index is {self.index} of {self.count}; it must be at least 0 and below the count")

    def of(self, names: Sequence[str], *, in_runs: bool = False) -> list[str]:
        """
        >>> Share(1, 3).of(["a", "b", "c", "d", "e"]), Share(only="c").of(["a", "b", "c"]), Share(only="x").of(["a"])
        (['b', 'e'], ['c'], [])
        >>> [Share(i, 3).of(["a", "b", "c", "d", "e"], in_runs=True) for i in range(3)]
        [['a'], ['b', 'c'], ['d', 'e']]
        """
        if self.only is not None:
            return [name for name in names if name == self.only]
        if in_runs:
            return sorted(names)[len(names) * self.index // self.count : len(names) * (self.index + 1) // self.count]
        return sorted(names)[self.index :: self.count]

    def __str__(self) -> str:
        return self.only or f"{self.index}-of-{self.count}"


class ShareDone(Exception):  # noqa: N818 (it is no error)
    """Ends the stage's function once this runner's share of a map of shards is done."""

    def __init__(self, done: int, missing: int, total: int):
        super().__init__(f"did {done} shards; {total - missing} of {total} are finished by all runners")
        self.done, self.missing, self.total = done, missing, total


@dataclass
class ShareWriter(Writer):
    """A writer that does a share of the first unfinished map of shards and never commits."""

    share: Share = Share()
    shared: SharedShards | None = None
    quarantine: bool = False
    """Record failures beside the finished shards, for the launcher of the runners. If False, a failure ends this runner."""

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
        """Run the shards of this runner's share that nobody has finished, and publish them.

        It returns the statistics of all shards only if all are finished and this runner had none to run. `omittable` is
        for the process that commits: a failure here is recorded or ends the runner.
        Raises: ShareDone after its own shards, or while others are missing; IncompleteError if one of its shards fails.
        """
        assert self.shared is not None  # run_share gives it
        folder, side = ShardFolder(self.folder), ShardFolder(self.folder / SHARE_FOLDER)
        staged = self.shared.finished() & tasks.keys()
        if self.share.only is not None:
            self._take_from_the_stage(tasks, staged)
        there = {name for name in tasks if name not in staged and folder.finished(name) is not None}
        share_names = [name for name in self.share.of(sorted(tasks), in_runs=in_runs) if name not in staged]
        self.bring(*named_paths(self.folder, [tasks[name] for name in share_names or tasks.keys() & {self.share.only}]))
        if self.share.only in tasks:
            share_names = [self.share.only]
            side.run(self.share.only, run_and_publish, (self.shared, share_names[0], function, tasks[share_names[0]]))
        elif share_names:
            calls = {name: (self.shared, name, function, tasks[name]) for name in share_names}
            limits = self.execution.limits.of_stage(self.spec.stage)
            ran = run_shards(
                side,
                run_and_publish,
                calls,
                workers=workers or self.execution.workers,
                pool=self.pool,
                title=self.spec.name,
                limits=limits,
                in_runs=in_runs,
            )
            if ran.failures and self.quarantine:
                for failure in ran.failures:
                    self.shared.fail(failure)
            elif ran.failures:
                raise IncompleteError(self.spec.name, ran.failures, len(tasks), len(staged | there) + len(ran.finished))
        missing = tasks.keys() - there - self.shared.finished()
        if share_names or missing:
            raise ShareDone(len(share_names), len(missing), len(tasks))
        self.away.take(self.shared, tasks.keys() - there)
        if not lazy:
            self.bring(*self._paths_away(tasks))
        local = {name: statistics for name in there if (statistics := folder.finished(name)) is not None}
        return {name: local[name] if name in local else self.away.shards[name].statistics for name in sorted(tasks)}

    def _take_from_the_stage(self, tasks: Mapping[str, tuple[object, ...]], staged: Collection[str]) -> None:
        """Take shards that an attempt on this machine has finished: a shard of a later map needs their files."""
        attempt = ShardFolder(self.store.scratch / "writing" / self.spec.version)
        shard_folder = ShardFolder(self.folder)
        for name in tasks.keys() - {self.share.only} - set(staged):
            statistics = attempt.finished(name)
            if statistics is not None and shard_folder.finished(name) is None:
                files = attempt.records([name])[name][0]
                shard_folder.adopt(name, {path: attempt.root / path for path in files}, statistics)


def run_share(stage: Stage, config: object, job: Job, share: Share, *, quarantine: bool = False) -> ShareDone | None:
    """Do a share of a stage's shards. Returns None if all shards are finished; then materializing the artifact commits it.

    Raises: ValueError if the job was written by other code than this checkout's; IncompleteError; for `only` one shard, what
    the shard raises.
    """
    assert stage.run is not None  # a stage that runs as a job has no shards here
    code = stage_code(stage.module)
    if share.only is None and code.fingerprint != job.code_fingerprint:
        raise ValueError(
            f"{job.spec.name}: the job was written by code {job.code_fingerprint}, this checkout has {code.fingerprint}: what "
            "it makes would not be taken; write the job again from this checkout"
        )
    shared = SharedShards(job.store.storage, job.spec.version, code_id(code.fingerprint, code.packages))
    with _own_folder(job.store.scratch / "runners", f"{job.spec.version}-{share}") as folder, WorkerPool() as pool:
        execution = replace(job.execution, pool=pool)
        out = ShareWriter(job.store, job.spec, folder, execution, share=share, shared=shared, quarantine=quarantine)
        try:
            stage.run(out, config, **job.inputs)
        except ShareDone as done:
            return done
    return None


def stage_named(module: str, name: str) -> Stage:
    """Return the stage of a name that a module defines. Raises: ValueError listing the stages of the module."""
    stages = [value for value in vars(importlib.import_module(module)).values() if isinstance(value, Stage)]
    named_stage = next((stage for stage in stages if stage.name == name), None)
    if named_stage is None or named_stage.run is None:
        raise ValueError(f"module {module} has no stage {name!r} with shards; it has: {', '.join(s.name for s in stages)}")
    return named_stage


@contextmanager
def _own_folder(folder: Path, name: str):
    """Yield a working folder for this runner; a folder that a killed runner of the same share left is emptied."""
    folder.mkdir(parents=True, exist_ok=True)
    with try_lock(folder / f"{name}.lock") as held:
        own = folder / (name if held else f"{name}.{uuid.uuid4().hex[:8]}")
        shutil.rmtree(own, ignore_errors=True)
        (own / SHARD_FOLDER).mkdir(parents=True)
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)


def main(arguments: Sequence[str], report: Callable[[str], None] = print) -> int:
    """Run the command. Returns the exit status: 0 done, 75 other runners' shards are missing, 1 shards failed."""
    parser = argparse.ArgumentParser(
        prog="python -m lineage.build.shard_runner", description="Run some shards of one artifact."
    )
    parser.add_argument("module", help="module that defines the stage, e.g. datakit.normalize")
    parser.add_argument("job", type=Path, help="job file: a failed stage names its own, `lineage.build.stage_run` writes one")
    parser.add_argument("--index", type=int, default=int(os.environ.get("JOB_COMPLETION_INDEX", "0")))
    parser.add_argument("--count", type=int, default=1, help="how many runners there are")
    quarantine = "record failures where the launcher of all runners reads them, and exit 0"
    parser.add_argument("--quarantine", action="store_true", help=quarantine)
    parser.add_argument("--only", help="one shard by its name, in this process, with its traceback")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    job = read_job(given.job)
    stage = stage_named(given.module, job.spec.stage)
    started = time.perf_counter()
    share = Share(given.index, given.count, given.only)
    try:
        done = run_share(stage, read_config(job.spec, stage), job, share, quarantine=given.quarantine)
    except IncompleteError as error:
        report(str(error))
        return 1
    took = f"{time.perf_counter() - started:.1f} s, peak {peak_rss_bytes(os.getpid()) / 2**20:.0f} MiB"
    if done is None:
        if share.only is not None:
            raise ValueError(f"{job.spec.name} has no shard {share.only!r}, or it is finished")
        report(f"{job.spec.name}: every shard is finished; materialize it to commit ({took})")
        return 0
    if share.only is not None and not done.done:
        raise ValueError(
            f"{job.spec.name}: {share.only!r} is not among the shards that can be run yet; {done.missing} before it are not "
            "finished"
        )
    report(f"{job.spec.name}, runner {share}: {done} ({took})")
    return NOT_YET if done.missing and not done.done and not given.quarantine else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
