"""What may choose the trials of a round: a search in a box of settings, or the sizes of the next isoflop budget."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from science.laws.parabola import valleys
from science.search.gaussian import propose_gaussian
from science.search.space import Dimension, placed_trials
from science.search.tpe import VERSION, propose_tpe
from science.trials import Fault, RefusedSweepError, Trial, points_of

LEAST_VALLEYS = 2
"""Budgets with a minimum inside their sizes; a line needs two."""


@dataclass(frozen=True)
class Proposed:
    """One trial that a round should run: its settings by name."""

    name: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class SpaceSearch:
    """Look for the lowest loss in a box of settings, such as the learning rate."""

    space: tuple[Dimension, ...]
    count: int = 4
    """Trials of a round."""
    method: Literal["gaussian", "tpe"] = "gaussian"
    """`gaussian` is the lab's own (`science.search.gaussian`), `tpe` is Optuna's, which must be installed."""
    version: str = ""
    """Version of Optuna; part of the identity of what it proposes. It is filled in."""
    seed: int = 0
    kind: Literal["space"] = "space"

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.space]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"search: its dimensions are {names}; give at least one, each once")
        if self.count < 1:
            raise ValueError(f"search: count is {self.count}; a round has at least 1 trial")
        object.__setattr__(self, "version", VERSION if self.method == "tpe" else "")

    @property
    def example(self) -> dict[str, float]:
        """Settings in the middle of the box."""
        return {dimension.name: dimension.from_unit(0.5) for dimension in self.space}


@dataclass(frozen=True)
class NextBudget:
    """Sizes around the optimum that the fitted budgets predict at the next one, with repeats of the middle one."""

    ratio: float
    """The next budget as a multiple of the largest."""
    sizes: tuple[tuple[int, int], ...]
    """(width, parameters without embeddings) of the models that a trial may have, by width."""
    count: int = 5
    """Sizes of a round; the trials are `repeats` more."""
    repeats: int = 2
    """Further seeds of the middle size."""
    kind: Literal["next_budget"] = "next_budget"

    def __post_init__(self) -> None:
        if self.ratio <= 1:
            raise ValueError(f"next budget: ratio is {self.ratio}; it must be above 1")
        if not 3 <= self.count <= len(self.sizes) or list(self.sizes) != sorted(self.sizes):
            raise ValueError(
                f"next budget: count is {self.count} of {len(self.sizes)} sizes; give at least 3 sizes, by width, and count in "
                "3..their number"
            )

    @property
    def example(self) -> dict[str, float]:
        """Settings of a trial, as an example."""
        return {"budget": 1e12, "width": float(self.sizes[0][0]), "seed": 0.0}


type Proposer = SpaceSearch | NextBudget


def slots(proposer: Proposer) -> tuple[str, ...]:
    """Names of the trials of every round."""
    more = proposer.repeats if isinstance(proposer, NextBudget) else 0
    return tuple(f"t{index}" for index in range(proposer.count + more))


def propose_round(proposer: Proposer, trials: Sequence[Trial], digest: str, number: int) -> list[Proposed]:
    """The trials of a round, by the table alone: `digest` is the table's, and the random numbers follow from it and the seed.

    Raises: RefusedSweepError for a table from which nothing can be proposed.
    """
    if isinstance(proposer, NextBudget):
        chosen = _next_budget(proposer, trials)
    else:
        placed = placed_trials(trials, proposer.space)
        method = propose_tpe if proposer.method == "tpe" else propose_gaussian
        places = method(placed, proposer.count, seed_of(digest, proposer.seed, number))
        chosen = [
            {dimension.name: dimension.from_unit(float(at)) for dimension, at in zip(proposer.space, place, strict=True)}
            for place in places
        ]
    return [Proposed(f"r{number}-{slot}", values) for slot, values in zip(slots(proposer), chosen, strict=True)]


def seed_of(digest: str, seed: int, number: int) -> int:
    """The seed of a round's random numbers."""
    return int.from_bytes(hashlib.sha256(f"{digest} {seed} {number}".encode()).digest()[:6])


def _next_budget(proposer: NextBudget, trials: Sequence[Trial]) -> list[dict[str, float]]:
    points = points_of(trials)
    for budget in np.unique(points.budgets):
        if len(sizes := np.unique(points.parameters[points.budgets == budget])) < 3:
            raise RefusedSweepError([Fault("too_few_sizes", f"budget {budget:.3g} has {len(sizes)} of at least 3 that ended")])
    minima = [valley for valley in valleys(points) if valley.fault is None]
    if len(minima) < LEAST_VALLEYS:
        what = f"{len(minima)} budgets have a minimum inside their sizes; at least {LEAST_VALLEYS} are needed"
        raise RefusedSweepError([Fault("too_few_minima", what)])
    line = np.polyfit(np.log([valley.budget for valley in minima]), np.log([valley.parameters for valley in minima]), 1)
    budget = float(f"{proposer.ratio * points.budgets.max():.6g}")
    optimum = float(np.exp(np.polyval(line, np.log(budget))))
    parameters = np.array([size for _, size in proposer.sizes], float)
    middle = int(np.argmin(np.abs(np.log(parameters / optimum))))
    if middle in (0, len(parameters) - 1):
        what = f"the optimum at {budget:.3g} FLOPs has {optimum:.3g} parameters, at the edge of the given sizes; give others"
        raise RefusedSweepError([Fault("edge_of_the_sizes", what)])
    first = min(max(0, middle - proposer.count // 2), len(parameters) - proposer.count)
    widths = [float(width) for width, _ in proposer.sizes[first : first + proposer.count]]
    seeds = [(width, 0) for width in widths]
    seeds += [(float(proposer.sizes[middle][0]), 1 + repeat) for repeat in range(proposer.repeats)]
    return [{"budget": budget, "width": width, "seed": float(seed)} for width, seed in seeds]
