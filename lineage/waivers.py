"""Waivers: artifacts that let one kind of problem through the gate, for a while, by somebody's decision.

A waiver is an artifact like any other (key `waivers/<problem>-<digest>`), so it has an identity, a date and a place in the
store that the work it let through refers to. It opens the gate for what its patterns match until the day it expires.
"""

import datetime
import fnmatch
from dataclasses import dataclass
from typing import Literal, get_args

from lineage.config import from_jsonable
from lineage.store import Artifact, Store

type Waivable = Literal["failed", "quarantined", "unaudited", "incomplete"]
"""Problems of judgement. What is missing, stale, edited, swapped or damaged has no bytes that could be let through."""

WAIVERS_KEY = "waivers"


@dataclass(frozen=True)
class Waiver:
    """`artifact` and `target` are shell patterns over names such as `corpus/default[kjv]` (in which `[` stands for itself)."""

    problem: Waivable
    artifact: str
    """What is not as it should be."""
    who: str
    why: str
    expires: str
    """Last day it holds, YYYY-MM-DD in UTC."""
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
        """Whether it lets `problem` of `artifact` through to `target` on a day.

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
    """Every waiver of a store, expired ones too."""
    return [(artifact, from_jsonable(Waiver, artifact.spec.config)) for artifact in store.artifacts(WAIVERS_KEY)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
