"""Configs of learning rate schedules. They import no JAX; `trainer.learning_rate` computes the rates.

`WarmupStableDecay` is the default; it has no `kind` in JSON, because it was the first. `CycleSchedule` covers the others:
constant, linear, cosine and inverse square root are one cycle without a plateau (`decay_steps=None`), WSD is one cycle with a
plateau, WSD-S several cycles (Wen et al. 2024, arXiv 2410.05192). `rewarmup_steps` warms up again in every later cycle.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from trainer.spec.checks import require

type Decay = Literal["constant", "linear", "cosine", "inverse_sqrt"]


@dataclass(frozen=True)
class WarmupStableDecay:
    """Linear warm-up, a plateau, then a linear decay over the last `decay_frac` of the steps to `min_lr_ratio` of the peak.

    Source: WSD of MiniCPM (Hu et al. 2024, arXiv 2404.06395); with a linear decay, as Haegele et al. 2024, arXiv 2405.18392.
    """

    peak_learning_rate: float
    warmup_steps: int
    decay_frac: float
    min_lr_ratio: float = 0.1
    start_lr_ratio: float = field(default=0.0, metadata={"added_later": True})
    """Share of the peak from which the warm-up rises, such as the rate at which the run before a warm start ended."""

    def __post_init__(self) -> None:
        _check_common(self)
        require(0 <= self.start_lr_ratio <= 1, "schedule.start_lr_ratio", self.start_lr_ratio, "in [0, 1]")
        require(0 <= self.decay_frac <= 1, "schedule.decay_frac", self.decay_frac, "in [0, 1]")

    def check_length(self, num_steps: int) -> None:
        """Raises: ValueError for a run that ends inside the warm-up."""
        require(self.warmup_steps <= num_steps, "schedule.warmup_steps", self.warmup_steps, f"<= num_steps {num_steps}")


@dataclass(frozen=True)
class CycleSchedule:
    """Cycles of warm-up, plateau and decay.

    A cycle over the steps [start, end) rises for `warmup_steps` (later cycles: `rewarmup_steps`) from the rate at the
    end of the cycle before it (the first: from 0) to the peak, stays there, and decays over its last `decay_steps`.
    Rewarming is from Gupta et al. 2023, arXiv 2308.04014; names and starting rates follow Levanter
    (docs/references.md#levanter-schedules).
    """

    peak_learning_rate: float
    warmup_steps: int = 0
    decay: Decay = "cosine"
    decay_steps: int | None = None
    """None: everything after the warm-up."""
    cycles: int | tuple[int, ...] = 1
    """Number of cycles of equal length (to a step), or the steps at which they end. With ends the schedule does not
    depend on the length of the run, so a run can be extended by adding an end."""
    rewarmup_steps: int = 0
    min_lr_ratio: float = 0.1
    timescale: float = 10_000.0
    """Steps over which `inverse_sqrt` decays to 1 / sqrt(2)."""
    kind: Literal["cycles"] = "cycles"

    def __post_init__(self) -> None:
        _check_common(self)
        require(self.rewarmup_steps >= 0, "schedule.rewarmup_steps", self.rewarmup_steps, "at least 0")
        require(self.timescale > 0, "schedule.timescale", self.timescale, "positive")
        if self.decay_steps is not None:
            require(self.decay_steps >= 0, "schedule.decay_steps", self.decay_steps, "at least 0, or None")
        if isinstance(self.cycles, int):
            require(self.cycles > 0, "schedule.cycles", self.cycles, "positive")
        else:
            ascending = all(before < after for before, after in pairwise((0, *self.cycles)))
            require(bool(self.cycles) and ascending, "schedule.cycles", self.cycles, "ends that ascend from above 0")

    def ends(self, num_steps: int) -> tuple[int, ...]:
        """The step after the last of each cycle.

        >>> CycleSchedule(1.0, cycles=3).ends(10), CycleSchedule(1.0, cycles=(4, 9)).ends(7)
        ((3, 7, 10), (4, 9))
        """
        if isinstance(self.cycles, int):
            return tuple(round(number * num_steps / self.cycles) for number in range(1, self.cycles + 1))
        return self.cycles

    def check_length(self, num_steps: int) -> None:
        """Raises: ValueError for cycles that end before the run does, or are too short for their warm-up and decay."""
        ends = self.ends(num_steps)
        require(ends[-1] >= num_steps, "schedule.cycles", self.cycles, f"ends of which the last is >= num_steps {num_steps}")
        for number, (start, end) in enumerate(pairwise((0, *ends))):
            climb = self.rewarmup_steps if number else self.warmup_steps
            name = "schedule.rewarmup_steps" if number else "schedule.warmup_steps"
            require(climb <= end - start, name, climb, f"<= {end - start}, the steps of the cycle that ends at {end}")
            left = end - start - climb
            require((self.decay_steps or 0) <= left, "schedule.decay_steps", self.decay_steps,
                    f"<= {left}, what warm-up leaves of the cycle that ends at {end}")  # fmt: skip


type Schedule = WarmupStableDecay | CycleSchedule


def _check_common(schedule: Schedule) -> None:
    require(schedule.peak_learning_rate > 0, "schedule.peak_learning_rate", schedule.peak_learning_rate, "positive")
    require(schedule.warmup_steps >= 0, "schedule.warmup_steps", schedule.warmup_steps, "at least 0")
    require(0 <= schedule.min_lr_ratio <= 1, "schedule.min_lr_ratio", schedule.min_lr_ratio, "in [0, 1]")
