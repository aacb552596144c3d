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
    stall_seconds: float = 1200.0
    """Without a step, after which a process ends itself: a peer that hangs still answers heartbeats, and holds all."""
    peak_tflops: str = ""
    """Of a device, for MFU: a number, `measure`, or nothing for the data sheet's (`trainer.flops`)."""
    evaluation: str = ""
    """Held-out texts that are scored on the way: `FILE@STEPS`, or nothing (`trainer.tagged`)."""

    def __post_init__(self) -> None:
        require(self.rolling_seconds > 0, "MARIN_ROLLING_SECONDS", self.rolling_seconds, "positive")
        require(self.stall_seconds > 0, "MARIN_STALL_SECONDS", self.stall_seconds, "positive")
        require(self.watch_steps > 0, "MARIN_WATCH_STEPS", self.watch_steps, "positive")
        require(set(self.trackers) <= set(KNOWN), "MARIN_TRACKERS", ",".join(self.trackers), f"among {', '.join(KNOWN)}")


def running_of(environment: Mapping[str, str]) -> Running:
    """What the environment says. Raises: ValueError naming the variable, its value and what is allowed.

    `MARIN_MESH` (data=4,tensor=2), `MARIN_ROLLING_SECONDS` (600), `MARIN_TRACKERS` (tensorboard,wandb),
    `MARIN_WATCH_STEPS` (50), `MARIN_PROFILE` (FIRST+COUNT steps: 20+5), `MARIN_STALL_SECONDS` (1200), `MARIN_PEAK_TFLOPS`
    (a number, or measure), `MARIN_EVAL` (FILE@STEPS), `MARIN_FAULTS` (tests).
    """
    seconds, watch = environment.get("MARIN_ROLLING_SECONDS", "600"), environment.get("MARIN_WATCH_STEPS", "50")
    stall = environment.get("MARIN_STALL_SECONDS", "1200")
    for name, value in (("MARIN_ROLLING_SECONDS", seconds), ("MARIN_STALL_SECONDS", stall)):
        require(value.replace(".", "", 1).isdecimal(), name, value, "a number of seconds")
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
        stall_seconds=float(stall),
        peak_tflops=environment.get("MARIN_PEAK_TFLOPS", ""),
        evaluation=environment.get("MARIN_EVAL", ""),
    )
