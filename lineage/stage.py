"""A stage: a kind of work, its version and its code. Engines declare theirs with it.

It stands in a file of its own so that the code fingerprint of every stage does not take in the machinery that builds plans,
launches jobs and stands at the gate: none of that decides what a stage writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

type Needs = Mapping[str, str]
"""Stage -> stage: every ancestor that the first has made must itself have an ancestor that the second has made."""


@dataclass(frozen=True)
class Stage:
    """A kind of work: its name, the version a person bumps when its meaning changes, and the code.

    Exactly one of: `run(out, config, **inputs)` fills a `Writer` in this process, or `job`, a module started as
    `python -m <job> job.json`, which commits the artifact itself (training and evaluation).
    """

    name: str
    version: str
    run: Callable[..., None] | None = None
    job: str | None = None
    gate: Needs | None = None
    """Not None: the launch gate stands before this stage (lineage/gate.py)."""

    def __post_init__(self) -> None:
        if (self.run is None) == (self.job is None):
            raise ValueError(f"stage {self.name}: give exactly one of run ({self.run!r}) and job ({self.job!r})")

    @property
    def module(self) -> str:
        """The module whose code the stage is; `lineage.fingerprint` follows what it imports."""
        return self.run.__module__ if self.run is not None else f"{self.job}.__main__"
