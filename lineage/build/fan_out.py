"""Run the shards of a data stage on many machines: one launch of many runners for each map of shards.

The orchestrating step runs the stage's function. At a map of shards it launches runners (`lineage.build.shard_runner`) as one
indexed job; each does its share and publishes it in the shared place, from which the step takes it. So the bytes are the same
as in one process, an asset does not know about it, and the same step commits.

A shard that fails in a runner is recorded there and quarantined here by name, as if it had failed in the step. The launcher
handles a runner that dies; shards that are unfinished when it stops trying are quarantined too.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lineage.jobs.job import Job, JobOptions, Launcher, LaunchRecord, Listener, launch_of
from lineage.shards.failures import ShardFailure
from lineage.shards.shared import SharedShards

log = logging.getLogger(__name__)

RUNNER = "lineage.build.shard_runner"
ROUNDS = 3
"""Launches for one map before giving up: a job adopted from a dead step may have been for another map."""


@dataclass(frozen=True)
class FanOut:
    """How shards run outside the orchestrating step; not part of any identity."""

    launcher: Launcher
    runners: int
    """Largest number of runners at once; a runner does every `runners`-th shard."""

    hardware: tuple[str, ...] = ("cpu",)
    """Hardware of each runner: names of single machines, in order of preference."""

    def __post_init__(self) -> None:
        if self.runners < 1:
            raise ValueError(f"fan_out.runners is {self.runners}; it must be at least 1, or leave fan_out out")


def run_map(
    fan_out: FanOut,
    module: str,
    job: Job,
    shared: SharedShards,
    missing: Collection[str],
    listener: Listener | None = None,
) -> tuple[Mapping[str, ShardFailure], list[LaunchRecord]]:
    """Let runners do shards. Returns the failed ones by name, and the records of the launches.

    Raises: what the launcher raises, if no shard was finished; RuntimeError if runners exit 0 and shards are unfinished.
    """
    shared.announce(job.spec)
    shared.forget_failures(missing)
    launch = replace(
        launch_of(RUNNER, job, JobOptions(fan_out.hardware), listener),
        arguments=("--quarantine", "--count", str(min(fan_out.runners, len(missing))), module),
        indices=min(fan_out.runners, len(missing)),
    )
    ran: list[LaunchRecord] = []
    left = sorted(missing)
    for _ in range(ROUNDS):
        log.info("%s: %d shards by %d runners", launch.name, len(missing), launch.indices)
        broken: RuntimeError | None = None
        try:
            ran.append(fan_out.launcher(launch))
        except RuntimeError as error:
            broken = error
        failed = shared.failed(missing)
        left = sorted(set(missing) - shared.finished() - failed.keys())
        log.info("%s: of %d shards %d failed and %d are unfinished", launch.name, len(missing), len(failed), len(left))
        if broken is not None:
            if len(left) == len(missing):
                raise broken
            return failed | {name: _lost(name, broken, launch.log_path) for name in left}, ran
        if not left:
            return failed, ran
    raise RuntimeError(
        f"{launch.name}: runners exited 0 {ROUNDS} times but shards {', '.join(left)} are unfinished; see {launch.log_path}"
    )


def together(ran: Sequence[LaunchRecord]) -> LaunchRecord | None:
    """Merge the launches of all maps of a stage into one record; None if there was none."""
    if not ran:
        return None
    return LaunchRecord(ran[-1].place, ran[-1].hardware, tuple(attempt for launched in ran for attempt in launched.attempts))


def _lost(name: str, error: RuntimeError, log_path: Path) -> ShardFailure:
    reason = str(error).splitlines()[0]
    return ShardFailure(name, "killed", f"its runner died: {reason}", f"the runner left none; its log: {log_path}", ())
