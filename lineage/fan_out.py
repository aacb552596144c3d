"""Shards of a data stage on many machines: one launch of many runners for every map of shards.

The step that orchestrates runs the stage's function; where it comes to a map of shards, runners (`lineage.shard_runner`) are
launched as one job with indices, each does its share and puts it in the shared place, and the step takes it from there. So the
bytes are those of one process, an asset does not know of it, and the step that commits is the one that the job had before.

A shard that fails in a runner is told there and quarantined by name here, as if it had failed in the step. A runner that dies
is the launcher's business first; what it left undone when the launcher gives up is quarantined too.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lineage.failures import ShardFailure
from lineage.jobs import Job, Launched, Launcher, Listener, Told, launch_of
from lineage.shared_shards import SharedShards

log = logging.getLogger(__name__)

RUNNER = "lineage.shard_runner"
ROUNDS = 3
"""Launches for one map before it is given up: a job that was adopted from a dead step may have been of another map."""


@dataclass(frozen=True)
class FanOut:
    """How shards leave the orchestrating step: how a stage runs, no part of any identity."""

    launcher: Launcher
    runners: int
    """At most so many at once; a runner does every `runners`-th shard."""

    hardware: tuple[str, ...] = ("cpu",)
    """What each runs on: names of single machines, in order of preference."""

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
) -> tuple[Mapping[str, ShardFailure], list[Launched]]:
    """Have shards done by runners: those that failed, by name, and where it ran.

    Raises: what the launcher raises, when not one shard came of it; RuntimeError when runners end well and leave shards.
    """
    shared.announce(job.spec)
    shared.forget_failures(missing)
    launch = replace(
        launch_of(RUNNER, job, Told(fan_out.hardware), listener),
        arguments=("--quarantine", "--count", str(min(fan_out.runners, len(missing))), module),
        indices=min(fan_out.runners, len(missing)),
    )
    ran: list[Launched] = []
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
        log.info("%s: of %d shards %d failed and %d were left", launch.name, len(missing), len(failed), len(left))
        if broken is not None:
            if len(left) == len(missing):
                raise broken
            return failed | {name: _lost(name, broken, launch.log_path) for name in left}, ran
        if not left:
            return failed, ran
    raise RuntimeError(f"{launch.name}: runners ended well {ROUNDS} times and left {', '.join(left)}; see {launch.log_path}")


def together(ran: Sequence[Launched]) -> Launched | None:
    """One record of the launches of all maps of a stage; None where there was none."""
    if not ran:
        return None
    return Launched(ran[-1].place, ran[-1].hardware, tuple(attempt for launched in ran for attempt in launched.attempts))


def _lost(name: str, error: RuntimeError, log_path: Path) -> ShardFailure:
    told = str(error).splitlines()[0]
    return ShardFailure(name, "killed", f"its runner died: {told}", f"the runner left none; its log: {log_path}", ())
