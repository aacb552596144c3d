"""A stage: a kind of work, its version and its code. Engines declare their stages with it.

It is a file of its own so that the code fingerprint of a stage does not include the code that builds plans, launches jobs and
checks the gate: none of that decides what a stage writes.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAliasType

from lineage.project import PREFIX

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

    config: type | TypeAliasType | None = None
    """Type of a job's config. A function states the type as the annotation of its second parameter."""

    description: str = ""
    """What its artifacts hold, in a sentence that the graph shows."""

    checks: tuple[str, ...] = ()
    """Names of the blocking checks of its artifacts (`marin_assets/data_stages.py`)."""

    def __post_init__(self) -> None:
        if (self.run is None) == (self.job is None):
            raise ValueError(f"stage {self.name}: give exactly one of run ({self.run!r}) and job ({self.job!r})")

    @property
    def module(self) -> str:
        """The module that defines the stage's code; `lineage.trust.fingerprint` follows its imports."""
        return self.run.__module__ if self.run is not None else f"{PREFIX}{self.job}.__main__"

    @property
    def config_type(self) -> type | TypeAliasType:
        """Type of the config: a dataclass or a union of dataclasses. Raises: ValueError if none is stated."""
        if self.config is not None:
            return self.config
        parameters = list(inspect.signature(self.run).parameters.values()) if self.run is not None else []
        if len(parameters) < 2 or parameters[1].annotation is inspect.Parameter.empty:
            raise ValueError(f"stage {self.name} states no type of its config; give Stage(config=...)")
        return parameters[1].annotation
