"""The box of settings in which trials are proposed, and what a table says of it.

A diverged trial is a point of the box without a loss: it says where not to go, and nothing failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from science.trials import Fault, RefusedSweepError, Trial

COLUMNS = ("learning_rate", "beta2")
"""Columns of a table that a search may vary."""
EQUAL = ("parameters", "tokens", "batch_tokens", "vocabulary", "policy", "schedule_end", *COLUMNS)
"""Columns in which trials must agree where the search does not vary them."""
DIGITS = 4
"""Significant digits of a proposed value: more would only be noise in the identity of a trial."""


@dataclass(frozen=True)
class Dimension:
    """One setting, between two bounds."""

    name: str
    low: float
    high: float
    scale: Literal["log", "linear"] = "log"

    def __post_init__(self) -> None:
        if self.name not in COLUMNS:
            raise ValueError(f"dimension {self.name!r} is no setting that a search varies; they are {', '.join(COLUMNS)}")
        if not self.low < self.high or (self.scale == "log" and self.low <= 0):
            raise ValueError(
                f"dimension {self.name}: low is {self.low}, high is {self.high}; low must be below high, and above 0 if the "
                "scale is log"
            )

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        """Values as places in 0..1; outside of the bounds they lie outside."""
        low, high = (np.log(end) if self.scale == "log" else end for end in (self.low, self.high))
        return ((np.log(values) if self.scale == "log" else values) - low) / (high - low)

    def from_unit(self, place: float) -> float:
        """The value at a place, rounded and within the bounds."""
        ratio, width = self.high / self.low if self.scale == "log" else 1.0, self.high - self.low
        value = self.low * ratio**place if self.scale == "log" else self.low + width * place
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class PlacedTrials:
    """The trials of a table in the unit box of a search, in the table's order."""

    places: np.ndarray
    """(trials, dimensions)."""
    losses: np.ndarray
    """(trials,), NaN where a trial diverged."""

    @property
    def feasible(self) -> np.ndarray:
        return np.isfinite(self.losses)

    @property
    def worst(self) -> float:
        """What a diverged trial counts as: as bad as the worst that ended, or as twice the median's distance from the best.

        Losses beyond it are cut to it, so that one bad trial does not flatten the surface around the best.
        """
        ended = self.losses[self.feasible]
        best = float(ended.min())
        return best + max(2 * (float(np.median(ended)) - best), 1e-9)


def placed_trials(trials: Sequence[Trial], space: Sequence[Dimension]) -> PlacedTrials:
    """Place the trials of a table.

    Raises: RefusedSweepError if they differ in what the search does not vary, or if all diverged.
    """
    varied = {dimension.name for dimension in space}
    faults = []
    for column in EQUAL:
        values = sorted({str(getattr(trial, column)) for trial in trials})
        if column not in varied and len(values) > 1:
            faults.append(Fault(f"mixed_{column}", f"{', '.join(values)}; a search varies {', '.join(sorted(varied))} alone"))
    if all(trial.loss is None for trial in trials):
        faults.append(Fault("all_diverged", f"all {len(trials)} trials diverged; lower the bounds of the rate, or start again"))
    if faults:
        raise RefusedSweepError(faults)
    columns = [dimension.to_unit(np.array([getattr(trial, dimension.name) for trial in trials])) for dimension in space]
    losses = np.array([np.nan if trial.loss is None else trial.loss for trial in trials], float)
    return PlacedTrials(np.stack(columns, axis=1), losses)
