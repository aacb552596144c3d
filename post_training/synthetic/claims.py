"""Claims: many processes share the units of a shard, none is lost with its worker, and each is recorded once.

A unit is claimed by a lease of the store (`lineage.storage.leases`), which its holder renews. A dead holder's claim expires,
and another process takes the unit. The first complete record of a unit counts, because it is created only if there is none. A
worker that was paused and lost its claim therefore changes nothing. A shard is sealed only when every unit has its record:
rows of a worker that still runs are never left out (the fault of marin #4719).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lineage.storage.leases import HeldError, LostError, lease
from lineage.storage.root import WORKING, Storage

log = logging.getLogger("post_training.synthetic")


class UnsealedError(RuntimeError):
    """A shard has units without a record."""


FOLDER, LEASES = f"{WORKING}synthetic", f"{WORKING}leases"


def forget(storage: Storage, shard: str) -> None:
    """Delete the records and claims of a shard that is committed: its rows are in the artifact.

    A process that still builds the shard would answer its units again, and the artifact would stay as it is.
    """
    storage.delete(f"{FOLDER}/{shard}")
    storage.delete(f"{LEASES}/{shard}")


@dataclass(frozen=True)
class Claims:
    """The units of one shard, below a folder of the root that every worker of the shard sees."""

    storage: Storage
    shard: str
    """Names the folder; the version of the artifact, so that another identity has other records."""

    who: str
    seconds: float

    def record_of(self, unit: str) -> str | None:
        """Return the record of a unit, or None if it has none yet."""
        return self.storage.read_text(self._address(unit))

    def unfinished(self, units: Sequence[str]) -> list[str]:
        there = set(self.storage.records(self._folder))
        return [unit for unit in units if f"{unit}.jsonl" not in there]

    def work(self, units: Sequence[str], answer: Callable[[str], str]) -> int:
        """Answer units until every unit has a record; return how many this process recorded.

        Raises: what `answer` raises, after the claim is released.
        """
        recorded = 0
        while left := self.unfinished(units):
            free = sum(self._answered(unit, answer, 0.0) or 0 for unit in left)
            if not free and (waits := self.unfinished(units)):
                free = self._answered(waits[0], answer, 1.5 * self.seconds) or 0
            recorded += free
        return recorded

    def sealed(self, units: Sequence[str]) -> list[str]:
        """Return every record, in the order of the units. Raises: UnsealedError naming a unit without one."""
        if left := self.unfinished(units):
            raise UnsealedError(f"{self.shard}: unit {left[0]} and {len(left) - 1} others are not done; the shard stays open")
        return [self.record_of(unit) or "" for unit in units]

    def finish(self, unit: str, record: str) -> bool:
        """Record a unit; False, and nothing changed, if it has a record already."""
        return self.storage.create(self._address(unit), record)

    def _answered(self, unit: str, answer: Callable[[str], str], wait: float) -> bool | None:
        """Claim a unit, answer it and record it. Returns None if another process holds it or recorded it."""
        try:
            with lease(self.storage, f"{self.shard}/{unit}", self.who, seconds=self.seconds, wait_seconds=wait) as held:
                if self.record_of(unit) is not None:
                    return None
                record = answer(unit)
                held.check()
                return self.finish(unit, record)
        except HeldError:
            return None
        except LostError as error:
            log.warning("%s; its answers are left out", error)
            return None

    @property
    def _folder(self) -> str:
        return f"{FOLDER}/{self.shard}"

    def _address(self, unit: str) -> str:
        return f"{self._folder}/{unit}.jsonl"
