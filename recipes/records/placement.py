"""Where artifacts of a run are placed: which part of their name is in the key, and which is the partition.

Only this file knows whether the source is in the partition (canonical assets) or in the key (a ferry's assets).
"""

from dataclasses import dataclass
from typing import Protocol

type Place = tuple[tuple[str, ...], str | None]
"""Key and partition of a node."""


class Placement(Protocol):
    """The places of a run's artifacts."""

    @property
    def data(self) -> "Placement":
        """The placement of the data that the run reads."""

    def of_source(self, *key: str, source: str) -> Place:
        """Place of an artifact that each source has."""

    def of_all(self, *key: str) -> Place:
        """Place of an artifact that all sources share."""

    def of_mix(self, mix: str) -> Place:
        """Place of a mixture."""

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        """Place of an artifact of a run; `partition` is the artifact's, such as a step."""


@dataclass(frozen=True)
class Canonical:
    """The default: the source is the partition of data, the step or the task that of runs."""

    @property
    def data(self) -> "Canonical":
        return self

    def of_source(self, *key: str, source: str) -> Place:
        return key, source

    def of_all(self, *key: str) -> Place:
        return key, None

    def of_mix(self, mix: str) -> Place:
        return ("mixture", mix), None

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        return ("runs", run, *key), partition


CANONICAL = Canonical()


@dataclass(frozen=True)
class Daily:
    """A ferry: every key begins with `prefix` and holds the source, and the day is the only partition."""

    prefix: str
    day: str

    @property
    def data(self) -> "Daily":
        return self

    def of_source(self, *key: str, source: str) -> Place:
        return (self.prefix, *key, source), self.day

    def of_all(self, *key: str) -> Place:
        return (self.prefix, *key), self.day

    def of_mix(self, mix: str) -> Place:
        return (self.prefix, "mixture", mix), self.day

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        return (self.prefix, "runs", run, *key), self.day


class _CanonicalData:
    """Places the data of a run canonically; a subclass places the run."""

    @property
    def data(self) -> Canonical:
        return CANONICAL

    def of_source(self, *key: str, source: str) -> Place:
        return CANONICAL.of_source(*key, source=source)

    def of_all(self, *key: str) -> Place:
        return CANONICAL.of_all(*key)

    def of_mix(self, mix: str) -> Place:
        return CANONICAL.of_mix(mix)


@dataclass(frozen=True)
class CanaryOf(_CanonicalData):
    """A canary: its data is canonical; its run has the day as partition and its hardware in the key."""

    hardware: str
    day: str

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        return ("canary", self.hardware, *key), self.day


@dataclass(frozen=True)
class TrialOf(_CanonicalData):
    """A trial of a sweep: its data is canonical; its run is one partition of the sweep's assets."""

    sweep: str

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        renamed = ("trial", *key[1:]) if key[0] == "checkpoint" else key
        return ("sweeps", self.sweep, *renamed), run


@dataclass(frozen=True)
class SwarmTrialOf(_CanonicalData):
    """A trial of a swarm: its mixture, too, is a partition of one asset, because every trial has its own weights."""

    swarm: str
    room: tuple[str, ...] = ()
    """What its assets' keys have between the swarm and their own name."""
    family: str = "swarms"
    """The first part of the keys."""

    def of_mix(self, mix: str) -> Place:
        return (self.family, self.swarm, *self.room, "mixture"), mix

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        renamed = ("trial", *key[1:]) if key[0] == "checkpoint" else key
        return (self.family, self.swarm, *self.room, *renamed), run


@dataclass(frozen=True)
class RoundTrialOf(_CanonicalData):
    """A trial that a search proposed: its partition is its round and its place in it, `r1|t0`."""

    search: str
    round: str

    def of_run(self, run: str, *key: str, partition: str) -> Place:
        renamed = ("trial", *key[1:]) if key[0] == "checkpoint" else key
        return ("sweeps", self.search, *renamed), f"{self.round}|{run.removeprefix(f'{self.round}-')}"


type TrialPlace = TrialOf | SwarmTrialOf
