"""Two gates by which a variant is promoted: an effective speed-up with its interval at each size, then a projection.

The speed-up at a budget: the baseline's law is moved through the baseline's own point; it says how much compute the baseline
needs for the variant's loss; the ratio is divided by the ratio of counted training FLOPs per second. At equal speed it is
((L_b - L_inf) / (L_v - L_inf))^(1 / alpha) whatever the budget (marin-community/marin#6757, #9280). Compute is matched by the
trainer's own FLOP count, because tokens x active parameters gave one side 17 % more (#9287).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from science.laws.power import PowerLaw, fit_pinned
from science.trials import FLOP_TOLERANCE

type Promotion = Literal["promote", "bench", "undecided"]


@dataclass(frozen=True)
class Measured:
    """One run of a pair."""

    loss: float
    flops: float
    flops_per_second: float
    """Training FLOPs by the trainer's count, divided by seconds."""


@dataclass(frozen=True)
class Pair:
    """Baseline and variant of one size."""

    size: str
    baseline: Measured
    variant: Measured

    def __post_init__(self) -> None:
        off = self.variant.flops / self.baseline.flops - 1
        if abs(off) > FLOP_TOLERANCE:
            raise ValueError(
                f"pair {self.size}: the variant took {100 * off:+.1f} % of the baseline's FLOPs; at most 1 % apart"
            )


@dataclass(frozen=True)
class Gates:
    """At which sizes both gates judge, and how far they project."""

    asymptote: float
    """Loss that no budget reaches. It belongs to a metric, so it is declared: 1.6 is Paloma macro's."""
    first: tuple[str, ...]
    """The small sizes, by the name of their pair."""
    second: tuple[str, ...]
    projected: tuple[float, ...]
    """Training FLOPs of larger runs at which the variant must not be projected to lose."""
    level: float = 0.9

    def __post_init__(self) -> None:
        if not self.first or not self.second:
            raise ValueError(f"the gates have sizes {self.first} and {self.second}; give each at least one")
        if not 0 < self.level < 1:
            raise ValueError(f"level of the gates is {self.level}; it must be above 0 and below 1")


@dataclass(frozen=True)
class GateConfig:
    """What a verdict needs beside the pairs: the metric, the gates, and the noise of a run."""

    metric: str
    gates: Gates
    seed_sigma: float
    """Standard deviation of one run's loss between seeds."""
    seed_freedom: int
    """Degrees of freedom of that estimate."""

    def __post_init__(self) -> None:
        if self.seed_sigma < 0 or self.seed_freedom < 1:
            raise ValueError(
                f"seed noise is {self.seed_sigma} with {self.seed_freedom} degrees of freedom; measure it by repeats"
            )


@dataclass(frozen=True)
class SpeedUp:
    """How much compute the variant saves at one size."""

    size: str
    factor: float
    low: float
    high: float
    smallest_visible: float
    """The smallest loss difference whose interval would exclude a factor of 1, in the unit of the loss."""

    @property
    def verdict(self) -> Promotion:
        return "promote" if self.low > 1 else "bench" if self.high < 1 else "undecided"


def speed_up(pair: Pair, law: PowerLaw, config: GateConfig) -> SpeedUp:
    """The factor and its interval from the law's exponent and lack of fit (t, n - p) and the seed noise of both runs.

    Raises: ValueError for a loss at or below the asymptote.
    """
    base, variant = pair.baseline.loss - config.gates.asymptote, pair.variant.loss - config.gates.asymptote
    if min(base, variant) <= 0:
        raise ValueError(f"pair {pair.size}: a loss is at or below the asymptote {config.gates.asymptote} of {config.metric}")
    gain = float(np.log(base / variant))
    speed = float(np.log(pair.variant.flops_per_second / pair.baseline.flops_per_second))
    log_factor = gain / law.exponent + speed
    of_exponent = (gain / law.exponent**2) ** 2 * float(law.covariance[1, 1])
    of_seeds = config.seed_sigma**2 * (1 / base**2 + 1 / variant**2) / law.exponent**2
    width = _edge([(of_exponent, law.freedom), (of_seeds, config.seed_freedom)], config.gates.level)
    visible = _edge([(of_seeds, config.seed_freedom)], config.gates.level) * law.exponent * base
    return SpeedUp(
        pair.size, float(np.exp(log_factor)), float(np.exp(log_factor - width)), float(np.exp(log_factor + width)), visible
    )


def _edge(variances: Sequence[tuple[float, int]], level: float) -> float:
    """Half-width of a sum of estimates: Welch and Satterthwaite's degrees of freedom."""
    total = sum(variance for variance, _ in variances)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in variances if variance > 0)
    return float(special.stdtrit(freedom, 0.5 + level / 2) * np.sqrt(total))


@dataclass(frozen=True)
class Projection:
    """Variant less baseline at a larger budget, with the interval of the difference of the two laws."""

    budget: float
    difference: float
    low: float
    high: float
    smallest_visible: float
    """The smallest difference whose interval would exclude 0, in the unit of the loss: the half-width of the interval."""


@dataclass(frozen=True)
class GateVerdict:
    """What the two gates say, and what they could have seen."""

    verdict: Promotion
    why: str
    speed_ups: tuple[SpeedUp, ...]
    projections: tuple[Projection, ...] = ()


def judge(pairs: Sequence[Pair], law: PowerLaw, config: GateConfig) -> GateVerdict:
    """Gate 1 on the small sizes, then gate 2 on all and by projection. One clear loss at a size ends it: bench.

    Raises: ValueError if a size of a gate has no pair, or the law has another asymptote.
    """
    if not law.pinned or law.asymptote != config.gates.asymptote:
        raise ValueError(
            f"the law's asymptote is {law.asymptote} (pinned: {law.pinned}); the gate's is {config.gates.asymptote}"
        )
    by_size = {pair.size: speed_up(pair, law, config) for pair in pairs}
    pairs_by_size = tuple(by_size.values())
    for number, sizes in ((1, config.gates.first), (2, config.gates.second)):
        slower = [size for size in sizes if size in by_size and by_size[size].verdict == "bench"]
        if slower:
            return GateVerdict("bench", f"gate {number}: slower at {', '.join(slower)}", pairs_by_size)
        missing = [size for size in sizes if size not in by_size]
        if missing:
            return GateVerdict("undecided", f"gate {number}: no pair at {', '.join(missing)}", pairs_by_size)
        unclear = [size for size in sizes if by_size[size].verdict == "undecided"]
        if unclear:
            seen = max(by_size[size].smallest_visible for size in unclear)
            why = f"gate {number}: the interval holds 1 at {', '.join(unclear)}; a difference of {seen:.4f} would have shown"
            return GateVerdict("undecided", why, pairs_by_size)
    projections = tuple(_project(pairs, config, budget) for budget in config.gates.projected)
    if any(projection.low > 0 for projection in projections):
        return GateVerdict("bench", "gate 2: projected to lose at a larger budget", pairs_by_size, projections)
    if open_ones := [projection for projection in projections if projection.high >= 0]:
        at, seen = ", ".join(f"{one.budget:.3g}" for one in open_ones), max(one.smallest_visible for one in open_ones)
        why = f"gate 2: the projection's interval holds 0 at {at} FLOPs; a difference of {seen:.4f} would have shown"
        return GateVerdict("undecided", why, pairs_by_size, projections)
    return GateVerdict("promote", "", pairs_by_size, projections)


def _project(pairs: Sequence[Pair], config: GateConfig, budget: float) -> Projection:
    """The difference of two laws that are fitted to the same budgets, and the errors of both fits added.

    Each law leaves two degrees of freedom less than it has points. Runs of both sides have one noise, as in `speed_up`, so the
    residuals of both laws are pooled. With a spread of its own for each law Welch's interval held in .91 to .93 in place of
    .9. It is no interval of a new run: that has the seed noise in addition.
    """
    flops = np.array([[pair.baseline.flops, pair.variant.flops] for pair in pairs]).T
    losses = np.array([[pair.baseline.loss, pair.variant.loss] for pair in pairs]).T
    laws = [fit_pinned(x, y, config.gates.asymptote) for x, y in zip(flops, losses, strict=True)]
    freedom = sum(law.freedom for law in laws)
    residual = sum(law.spread**2 * law.freedom for law in laws) / freedom
    variance = 0.0
    for law, x in zip(laws, flops, strict=True):
        shift = np.log(x) - law.centre
        leverage = 1 / len(x) + (np.log(budget) - law.centre) ** 2 / (shift @ shift)
        variance += residual * float(leverage) * (law.at(budget) - law.asymptote) ** 2
    difference, width = laws[1].at(budget) - laws[0].at(budget), _edge([(variance, freedom)], config.gates.level)
    return Projection(budget, difference, difference - width, difference + width, width)
