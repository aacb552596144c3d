"""How a run runs, as opposed to what it is: told by its job, written in the record, in no identity.

A declared run's job is told on its command line, `python -m trainer MARIN_TRACKERS=wandb job.json` (`trainer.settings`); a
variable of the environment of the same name goes before it, and says so.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.checks import require
from trainer.faults import Fault, parse_faults
from trainer.mesh import MeshShape
from trainer.settings import NAMES
from trainer.trackers import KNOWN

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Running:
    """Settings of one attempt. Every one has a name (`running_of`)."""

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


def settings_of(told: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Settings by name from arguments `NAME=VALUE`, the later before the earlier, and the environment before both.

    Raises: ValueError for an argument that is none, or of another name.
    """
    pairs = [argument.partition("=") for argument in told]
    for argument, (name, equals, _) in zip(told, pairs, strict=True):
        require(bool(equals) and name in NAMES, "argument", argument, f"NAME=VALUE, NAME one of {', '.join(NAMES)}")
    settings = {name: value for name, _, value in pairs}
    for name in NAMES:
        if name in environment:
            instead = f" in place of the job's {settings[name]}" if name in settings else ""
            log.info("%s=%s of the environment%s", name, environment[name], instead)
    return settings | {name: environment[name] for name in NAMES if name in environment}


def running_of(environment: Mapping[str, str], told: Sequence[str] = ()) -> Running:
    """What the arguments and the environment say. Raises: ValueError naming the setting, its value and what is allowed.

    `MARIN_MESH` (data=4,tensor=2), `MARIN_ROLLING_SECONDS` (600), `MARIN_TRACKERS` (tensorboard,wandb),
    `MARIN_WATCH_STEPS` (50), `MARIN_PROFILE` (FIRST+COUNT steps: 20+5), `MARIN_STALL_SECONDS` (1200), `MARIN_PEAK_TFLOPS`
    (a number, or measure), `MARIN_EVAL` (FILE@STEPS), `MARIN_FAULTS` (tests).
    """
    environment = settings_of(told, environment)
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
