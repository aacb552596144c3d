"""Runtime settings of an attempt: how a run executes, not what it computes. Recorded, but in no identity.

The job of a declared run gets them on its command line, `python -m trainer MARIN_TRACKERS=wandb job.json`
(`trainer.spec.settings`). An environment variable of the same name overrides the argument, and the log says so.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.faults import Fault, parse_faults
from trainer.spec.checks import require
from trainer.spec.mesh import MeshShape
from trainer.spec.settings import NAMES
from trainer.trackers import KNOWN

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Running:
    """Settings of one attempt. `running_of` lists their names."""

    mesh: MeshShape = field(default_factory=MeshShape)
    rolling_seconds: float = 600.0
    """Seconds between rolling checkpoints, which are deleted once a later checkpoint is kept."""
    faults: tuple[Fault, ...] = ()
    trackers: tuple[str, ...] = ()
    """Trackers besides the JSON lines, which are always written."""
    watch_steps: int = 50
    """Steps between tracker rows that have the norm of every weight."""
    profile: tuple[int, int] | None = None
    """First step and number of steps of a profiler trace."""
    stall_seconds: float = 1200.0
    """Seconds without a step after which a process ends itself: a peer that hangs still answers heartbeats and blocks all."""
    peak_tflops: str = ""
    """Peak TFLOP/s of a device, for MFU: a number, `measure`, or empty for the data sheet (`trainer.spec.flops`)."""
    evaluation: str = ""
    """Held-out texts to score during the run: `FILE@STEPS`, or empty (`trainer.tagged`)."""
    rollouts: str = ""
    """URL of the broker whose workers sample for a run on rewards with `max_staleness` above 0; empty: the run samples."""

    def __post_init__(self) -> None:
        require(self.rolling_seconds > 0, "MARIN_ROLLING_SECONDS", self.rolling_seconds, "positive")
        require(self.stall_seconds > 0, "MARIN_STALL_SECONDS", self.stall_seconds, "positive")
        require(self.watch_steps > 0, "MARIN_WATCH_STEPS", self.watch_steps, "positive")
        require(set(self.trackers) <= set(KNOWN), "MARIN_TRACKERS", ",".join(self.trackers), f"among {', '.join(KNOWN)}")


def settings_of(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Settings by name from arguments `NAME=VALUE`. A later argument overrides an earlier one, the environment overrides both.

    Raises: ValueError for an argument of another form or with an unknown name.
    """
    pairs = [argument.partition("=") for argument in arguments]
    for argument, (name, equals, _) in zip(arguments, pairs, strict=True):
        require(bool(equals) and name in NAMES, "argument", argument, f"NAME=VALUE, NAME one of {', '.join(NAMES)}")
    settings = {name: value for name, _, value in pairs}
    for name in NAMES:
        if name in environment:
            instead = f" in place of the job's {settings[name]}" if name in settings else ""
            log.info("%s=%s of the environment%s", name, environment[name], instead)
    return settings | {name: environment[name] for name in NAMES if name in environment}


def running_of(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Running:
    """Settings of the arguments and the environment. Raises: ValueError naming the setting, its value and what is allowed.

    `MARIN_MESH` (data=4,tensor=2), `MARIN_ROLLING_SECONDS` (600), `MARIN_TRACKERS` (tensorboard,wandb),
    `MARIN_WATCH_STEPS` (50), `MARIN_PROFILE` (FIRST+COUNT steps: 20+5), `MARIN_STALL_SECONDS` (1200), `MARIN_PEAK_TFLOPS`
    (a number, or measure), `MARIN_EVAL` (FILE@STEPS), `MARIN_ROLLOUTS` (http://127.0.0.1:8100), `MARIN_FAULTS` (tests).
    """
    environment = settings_of(arguments, environment)
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
        rollouts=environment.get("MARIN_ROLLOUTS", "").rstrip("/"),
    )
