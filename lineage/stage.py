"""A stage: a kind of work, its version and its code. Engines declare their stages with it.

It is a file of its own so that the code fingerprint of a stage does not include the code that builds plans, launches jobs and
checks the gate: none of that decides what a stage writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

type RequiredAncestors = Mapping[str, str]
"""Stage -> stage: every ancestor made by the first must itself have an ancestor made by the second."""


@dataclass(frozen=True)
class Stage:
    """A kind of work: its name, the version that a person bumps when its meaning changes, and its code.

    Exactly one of: `run(out, config, **inputs)` fills a `Writer` in this process, or `job`, a module started as
    `python -m <job> job.json`, which commits the artifact itself (training and evaluation).
    """

    name: str
    version: str
    run: Callable[..., None] | None = None
    job: str | None = None
    gate: RequiredAncestors | None = None
    """If not None, the launch gate checks all ancestors before this stage runs (lineage/trust/gate.py)."""

    def __post_init__(self) -> None:
        if (self.run is None) == (self.job is None):
            raise ValueError(f"stage {self.name}: give exactly one of run ({self.run!r}) and job ({self.job!r})")

    @property
    def module(self) -> str:
        """The module that defines the stage's code; `lineage.trust.fingerprint` follows its imports."""
        return self.run.__module__ if self.run is not None else f"{self.job}.__main__"
