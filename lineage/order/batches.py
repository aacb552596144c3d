"""Batch sizes by step, and the sequences that a step reads: one pure function and its inverse.

Step `t` (from 0) reads the global sequences `[first(t), first(t) + size(t))` of the data order. `first(t)` is the sum
of the sizes before it, plus what earlier runs read if this run continues their order (`before`). Both directions are
closed forms over the phases, so a resume, an audit and a loader need no state.
"""

import bisect
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lineage.config import from_jsonable, to_jsonable


@dataclass(frozen=True)
class BatchPhase:
    """Sequences in a step, from a step on."""

    start_step: int
    batch_size: int


type BatchSize = int | tuple[BatchPhase, ...]
"""One size for all steps, or phases by step."""


@dataclass(frozen=True)
class BatchSchedule:
    """Sizes by step; `BatchSchedule.of` makes one from a plain size or from phases."""

    phases: tuple[BatchPhase, ...]
    before: int = 0
    """Global sequences read before step 0, by the runs whose data order this one continues."""

    def __post_init__(self) -> None:
        if not self.phases or self.phases[0].start_step != 0:
            raise ValueError(f"batch_size has phases {self.phases!r}; the first must start at step 0")
        for phase in self.phases:
            if phase.batch_size < 1:
                since = f" from step {phase.start_step}" if phase.start_step else ""
                raise ValueError(f"batch_size is {phase.batch_size}{since}; it must be positive")
        for before, after in pairwise(self.phases):
            if after.start_step <= before.start_step:
                raise ValueError(
                    f"batch_size has a phase that starts at step {after.start_step} after one at {before.start_step}; "
                    "starts must ascend"
                )

    @staticmethod
    def of(batch_size: BatchSize) -> "BatchSchedule":
        phases = (BatchPhase(0, batch_size),) if isinstance(batch_size, int) else batch_size
        return BatchSchedule(phases)

    @staticmethod
    def from_record(record: object, before: int = 0) -> "BatchSchedule":
        """Build it from the `batch_size` of a checkpoint's manifest: a number, or a list of phases."""
        if isinstance(record, int):
            return BatchSchedule((BatchPhase(0, record),), before)
        return BatchSchedule(from_jsonable(tuple[BatchPhase, ...], record, where="batch_size"), before)

    def to_record(self) -> object:
        """Return what `from_record` reads: a number if there is one size."""
        return self.phases[0].batch_size if len(self.phases) == 1 else to_jsonable(self.phases)

    def followed_by(self, later: "BatchSchedule", step: int) -> "BatchSchedule":
        """Return this schedule up to a step, and another from there on: two runs over one data order as one."""
        shifted = (BatchPhase(step + phase.start_step, phase.batch_size) for phase in later.phases)
        return BatchSchedule((*(phase for phase in self.phases if phase.start_step < step), *shifted), self.before)

    def size(self, step: int) -> int:
        """Return the sequences that a step reads. Raises: ValueError for a negative step."""
        return self.phases[self._phase_at(step)].batch_size

    def first(self, step: int) -> int:
        """Return the global index of the first sequence of a step: how many sequences were read before it.

        >>> BatchSchedule((BatchPhase(0, 4), BatchPhase(10, 8))).first(12)
        56
        """
        which = self._phase_at(step)
        earlier = sum((after.start_step - before.start_step) * before.batch_size for before, after in self._pairs(which))
        return self.before + earlier + (step - self.phases[which].start_step) * self.phases[which].batch_size

    def locate(self, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (steps, rows within their batches) that read global sequences, int64 like `sequences`: the inverse of
        `first`.

        Raises: ValueError for a sequence before step 0.
        """
        values = np.asarray(sequences, dtype=np.int64)
        if values.size and int(values.min()) < self.before:
            raise ValueError(f"global sequence index {int(values.min())} is below {self.before}, the first that step 0 reads")
        starts = np.array([phase.start_step for phase in self.phases], np.int64)
        sizes = np.array([phase.batch_size for phase in self.phases], np.int64)
        firsts = np.array([self.first(int(start)) for start in starts], np.int64)
        which = np.searchsorted(firsts, values, side="right") - 1
        steps, rows = np.divmod(values - firsts[which], sizes[which])
        return starts[which] + steps, rows

    def _phase_at(self, step: int) -> int:
        if step < 0:
            raise ValueError(f"step {step} is negative; steps count from 0")
        return bisect.bisect_right(self.phases, step, key=lambda phase: phase.start_step) - 1

    def _pairs(self, which: int):
        return pairwise(self.phases[: which + 1])
