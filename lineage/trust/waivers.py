"""Waivers: a person's decision that the gate ignores one kind of problem until a date.

A waiver is an artifact (key `waivers/<problem>-<digest>`), so it has an identity, a date and an address. Work that it allowed
names that address in its manifest. It applies to what its patterns match until the day it expires.
"""

import datetime
import fnmatch
from dataclasses import dataclass
from typing import Literal, get_args

from lineage.artifact.store import Artifact, Store
from lineage.config import from_jsonable

type Waivable = Literal["failed", "quarantined", "unaudited", "incomplete"]
"""Problems that a person may overrule. Artifacts that are missing, stale, edited, swapped or damaged cannot be used at all."""

WAIVERS_KEY = "waivers"


@dataclass(frozen=True)
class Waiver:
    """`artifact` and `target` are shell patterns over names such as `corpus/default[kjv]` (in which `[` stands for itself)."""

    problem: Waivable
    artifact: str
    """The artifact that has the problem."""
    who: str
    why: str
    expires: str
    """Last day it applies, YYYY-MM-DD in UTC."""
    target: str = "*"
    """What may be built on it."""

    def __post_init__(self) -> None:
        allowed = get_args(Waivable.__value__)
        if self.problem not in allowed:
            raise ValueError(f"waiver problem is {self.problem!r}; allowed: {', '.join(allowed)} (others must be mended)")
        for name in ("artifact", "target", "who", "why"):
            if not getattr(self, name).strip():
                raise ValueError(f"waiver {name} is {getattr(self, name)!r}; it must say something")
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError:
            raise ValueError(f"waiver expires is {self.expires!r}; give a day, YYYY-MM-DD") from None

    def covers(self, problem: str, artifact: str, target: str, today: datetime.date) -> bool:
        """Whether it allows `target` to use `artifact` in spite of `problem` on a day.

        >>> waiver = Waiver("failed", "corpus/*[kjv]", "ada", "known", "2026-01-31", target="runs/*")
        >>> day = datetime.date(2026, 1, 31)
        >>> waiver.covers("failed", "corpus/default[kjv]", "runs/tiny/checkpoint[x]", day)
        True
        >>> waiver.covers("failed", "corpus/default[kjv]", "runs/tiny/checkpoint[x]", day + datetime.timedelta(1))
        False
        """
        return (
            problem == self.problem
            and today <= datetime.date.fromisoformat(self.expires)
            and _matches(artifact, self.artifact)
            and _matches(target, self.target)
        )


def recorded_waivers(store: Store) -> list[tuple[Artifact, Waiver]]:
    """Return every waiver of a store, including expired ones."""
    return [(artifact, from_jsonable(Waiver, artifact.spec.config)) for artifact in store.artifacts(WAIVERS_KEY)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
