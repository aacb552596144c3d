"""How a run runs, as opposed to what it is: read from the environment, written in the record, in no identity."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.checks import require
from trainer.faults import Fault, parse_faults
from trainer.mesh import MeshShape
from trainer.trackers import KNOWN


@dataclass(frozen=True)
class Running:
    """Settings of one attempt. Every one has a variable of the environment (`running_of`)."""

    mesh: MeshShape = field(default_factory=MeshShape)
    rolling_seconds: float = 600.0
    """Between rolling checkpoints, which are deleted once a kept one exists."""
    faults: tuple[Fault, ...] = ()
    trackers: tuple[str, ...] = ()
    """Besides the JSON lines, which are always written."""
    watch_steps: int = 50
    """Between rows that have the norms of every weight."""
    profile: tuple[int, int] | None = None
    """First step and number of steps of a profiler trace."""

    def __post_init__(self) -> None:
        require(self.rolling_seconds > 0, "MARIN_ROLLING_SECONDS", self.rolling_seconds, "positive")
        require(self.watch_steps > 0, "MARIN_WATCH_STEPS", self.watch_steps, "positive")
        require(set(self.trackers) <= set(KNOWN), "MARIN_TRACKERS", ",".join(self.trackers), f"among {', '.join(KNOWN)}")


def running_of(environment: Mapping[str, str]) -> Running:
    """What the environment says. Raises: ValueError naming the variable, its value and what is allowed.

    `MARIN_MESH` (data=4,tensor=2), `MARIN_ROLLING_SECONDS` (600), `MARIN_TRACKERS` (tensorboard,wandb),
    `MARIN_WATCH_STEPS` (50), `MARIN_PROFILE` (FIRST+COUNT steps: 20+5), `MARIN_FAULTS` (tests).
    """
    seconds, watch = environment.get("MARIN_ROLLING_SECONDS", "600"), environment.get("MARIN_WATCH_STEPS", "50")
    require(seconds.replace(".", "", 1).isdecimal(), "MARIN_ROLLING_SECONDS", seconds, "a number of seconds")
    require(watch.isdecimal(), "MARIN_WATCH_STEPS", watch, "a number of steps")
    window = environment.get("MARIN_PROFILE", "")
    match = re.fullmatch(r"(\d+)\+([1-9]\d*)", window)
    require(not window or match is not None, "MARIN_PROFILE", window, "FIRST+COUNT steps, like 20+5")
    return Running(
        mesh=MeshShape.parse(environment.get("MARIN_MESH", "")),
        rolling_seconds=float(seconds),
        faults=parse_faults(environment.get("MARIN_FAULTS", "")),
        trackers=tuple(filter(None, (name.strip() for name in environment.get("MARIN_TRACKERS", "").split(",")))),
        watch_steps=int(watch),
        profile=None if match is None else (int(match[1]), int(match[2])),
    )
