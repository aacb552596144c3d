"""How a run runs, as opposed to what it is: read from the environment, written in the record, in no identity."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.checks import require
from trainer.faults import Fault, parse_faults
from trainer.mesh import MeshShape


@dataclass(frozen=True)
class Running:
    """Settings of one attempt. Every one has a variable of the environment (`running_of`)."""

    mesh: MeshShape = field(default_factory=MeshShape)
    rolling_seconds: float = 600.0
    """Between rolling checkpoints, which are deleted once a kept one exists."""
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        require(self.rolling_seconds > 0, "MARIN_ROLLING_SECONDS", self.rolling_seconds, "positive")


def running_of(environment: Mapping[str, str]) -> Running:
    """`MARIN_MESH` (data=4,tensor=2), `MARIN_ROLLING_SECONDS` (600), `MARIN_FAULTS` (tests). Raises: ValueError."""
    seconds = environment.get("MARIN_ROLLING_SECONDS", "600")
    require(seconds.replace(".", "", 1).isdecimal(), "MARIN_ROLLING_SECONDS", seconds, "a number of seconds")
    return Running(
        mesh=MeshShape.parse(environment.get("MARIN_MESH", "")),
        rolling_seconds=float(seconds),
        faults=parse_faults(environment.get("MARIN_FAULTS", "")),
    )
