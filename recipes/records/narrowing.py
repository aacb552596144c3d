"""A choice over sources. Every record of a run has a method `narrowed` that applies it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

log = logging.getLogger(__name__)


class Growing(Protocol):
    """A record that may add to an earlier one of its kind."""

    @property
    def earlier(self) -> Self | None: ...

    @property
    def own_sources(self) -> tuple[str, ...]:
        """The sources that it adds."""
        ...

    def narrowed(self, by: "Narrowing") -> Self: ...


@dataclass(frozen=True)
class Narrowing:
    """Which sources stay: `why_not` returns the reason to leave one out, or None; `suffix` is added to records' names."""

    suffix: str
    why_not: Callable[[str], str | None]

    def name(self, name: str) -> str:
        return f"{name}-{self.suffix}"

    def kept(self, sources: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sources that stay, in their order; there may be none."""
        return tuple(source for source in sources if self.why_not(source) is None)

    def of_earlier[R: Growing](self, record: R | None) -> R | None:
        """Return the narrowed record, or the one before it where none of its own sources stays; None if there is none."""
        while record is not None and not self.kept(record.own_sources):
            record = record.earlier
        return None if record is None else record.narrowed(self)

    def left_out(self, sources: tuple[str, ...]) -> dict[str, str]:
        """Return source -> reason for the others, and log them. Raises: ValueError if no source stays."""
        reasons = {source: reason for source in sources if (reason := self.why_not(source)) is not None}
        for source, reason in reasons.items():
            log.info("%s: source %s is left out, %s", self.suffix, source, reason)
        if len(reasons) == len(sources):
            raise ValueError(f"{self.suffix}: none of {', '.join(sources)} is left; {reasons}")
        return reasons
