"""The critical batch of runs over equal tokens, and how it grows.

At batch B a loss takes 1 + B / B_crit times the tokens that it takes in small batches (McCandlish et al. 2018, arXiv
1812.06162, equation 2.11; measured in pretraining by Zhang et al. 2024, arXiv 2410.21676). Where the loss falls as D^-beta,
runs over equal tokens D therefore have L(B) = L0 + a ((1 + B / B_crit)^beta - 1): L0 is the loss of a small batch and `a` is
what more tokens could still remove. beta is declared, because few batches cannot tell it from B_crit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.profile import profile
from science.trials import Fault, RefusedSweepError, Trial, mixed

LEAST_BATCHES, LEAST_RATES, LEAST_HORIZONS = 5, 3, 3
EQUAL = 0.01
"""Trials of equal tokens may differ by this share: a run has a whole number of steps."""
REACH = 30.0
"""The critical batch is looked for from the smallest batch divided by this to the largest times this."""


@dataclass(frozen=True)
class BatchPoint:
    """One batch at its best learning rate."""

    batch: float
    """Tokens of a step."""
    rate: float
    loss: float
    """At the vertex of the parabola in the logarithm of the rate."""


@dataclass(frozen=True)
class CriticalBatch:
    """The critical batch in tokens, with the interval of its profile."""

    batch: float
    low: float | None
    """None where the interval has no end within the reach of the batches."""
    high: float | None
    small_loss: float
    reducible: float
    exponent: float
    spread: float
    """Standard deviation of the residuals, in the unit of the loss."""
    freedom: int

    def loss(self, batch: np.ndarray | float) -> np.ndarray:
        """The fitted loss at a batch."""
        return self.small_loss + self.reducible * ((1 + np.asarray(batch, float) / self.batch) ** self.exponent - 1)


def best_rates(trials: Sequence[Trial]) -> list[BatchPoint]:
    """The best learning rate of each batch, by batch. Diverged trials are left out; seeds of one rate are averaged.

    Raises: RefusedSweepError naming unequal tokens, several sizes, too few rates or batches, and a best rate at the edge.
    """
    ended = [trial for trial in trials if trial.loss is not None]
    batches = sorted({trial.batch_tokens for trial in ended})
    faults = [*mixed(ended), *_unequal(ended)]
    if len(batches) < LEAST_BATCHES:
        faults.append(Fault("too_few_batches", f"{len(batches)} of at least {LEAST_BATCHES}"))
    points = [_vertex(batch, [trial for trial in ended if trial.batch_tokens == batch]) for batch in batches]
    faults += [each for each in points if isinstance(each, Fault)]
    if faults:
        raise RefusedSweepError(faults)
    return [each for each in points if isinstance(each, BatchPoint)]


def _unequal(trials: Sequence[Trial]) -> Iterator[Fault]:
    tokens, sizes = [trial.tokens for trial in trials], sorted({trial.parameters for trial in trials})
    if len(sizes) > 1:
        yield Fault("mixed_sizes", f"{', '.join(map(str, sizes))} parameters; a critical batch is of one size")
    if tokens and max(tokens) > min(tokens) * (1 + EQUAL):
        yield Fault("unequal_tokens", f"from {min(tokens):.4g} to {max(tokens):.4g}; batches are compared at equal tokens")


def _vertex(batch: int, trials: Sequence[Trial]) -> BatchPoint | Fault:
    rates = np.array(sorted({trial.learning_rate for trial in trials}))
    losses = np.array([np.mean([t.loss for t in trials if t.learning_rate == rate and t.loss is not None]) for rate in rates])
    if len(rates) < LEAST_RATES:
        return Fault("too_few_rates", f"batch {batch} has {len(rates)} of at least {LEAST_RATES} that ended")
    lowest = int(np.argmin(losses))
    if lowest in (0, len(rates) - 1):
        return Fault("edge_rate", f"the best rate of batch {batch}, {rates[lowest]:g}, is at the edge of its rates; add one")
    near = slice(lowest - 1, lowest + 2)
    x = np.log(rates[near])
    centre = x.mean()
    square, line, constant = np.polyfit(x - centre, losses[near], 2)
    return BatchPoint(batch, float(np.exp(centre - line / (2 * square))), float(constant - line**2 / (4 * square)))


def fit_batches(batches: np.ndarray, losses: np.ndarray, exponent: float, level: float = 0.9) -> CriticalBatch:
    """Least squares. L0 and `a` follow linearly for each B_crit, so one dimension is searched; its profile is the interval.

    A batch is inside the interval if the F test with 1 and n - 3 degrees does not reject it (Bates and Watts 1988, chapter 6).
    Raises: ValueError for fewer than 5 points or an exponent outside 0..1; RefusedSweepError if larger batches do not lose, or
    if the losses exclude no batch.
    """
    if len(batches) < LEAST_BATCHES or len(set(batches.tolist())) < LEAST_BATCHES:
        raise ValueError(f"{len(set(batches.tolist()))} batches; a critical batch needs at least {LEAST_BATCHES}")
    if not 0 < exponent < 1:
        raise ValueError(f"exponent is {exponent}; it must be above 0 and below 1")
    freedom = len(batches) - 3
    edge = 1 + float(special.stdtrit(freedom, 0.5 + level / 2)) ** 2 / freedom
    profiled = profile(
        lambda criticals: _constants(batches, losses, criticals, exponent)[2],
        batches.min() / REACH, batches.max() * REACH, lambda least: least * edge,
    )  # fmt: skip
    small, reducible, _ = (float(column[0]) for column in _constants(batches, losses, np.array([profiled.best]), exponent))
    if reducible <= 0:
        raise RefusedSweepError([Fault("no_loss_of_batch", "losses do not rise with the batch; try larger batches")])
    if profiled.low is None and profiled.high is None:
        raise RefusedSweepError([Fault("undecided_batch", "every critical batch in reach fits; add batches or seeds")])
    spread = float(np.sqrt(profiled.square / freedom))
    return CriticalBatch(profiled.best, profiled.low, profiled.high, small, reducible, exponent, spread, freedom)


def _constants(
    batches: np.ndarray, losses: np.ndarray, criticals: np.ndarray, exponent: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(L0, a, sum of squares) at each critical batch; `a` is not below 0."""
    rise = (1 + batches / criticals[:, None]) ** exponent - 1
    means = rise.mean(axis=1)
    centred = rise - means[:, None]
    reducible = np.maximum(centred @ losses / (centred**2).sum(axis=1), 0.0)
    small = losses.mean() - reducible * means
    return small, reducible, ((losses - small[:, None] - reducible[:, None] * rise) ** 2).sum(axis=1)


@dataclass(frozen=True)
class BatchLaw:
    """B_crit = amplitude x tokens^exponent, with the interval of the exponent."""

    amplitude: float
    exponent: float
    low: float
    high: float


def batch_law(tokens: np.ndarray, batches: np.ndarray, level: float = 0.9) -> BatchLaw:
    """Least squares of ln B_crit on ln tokens, with Student's t. Raises: ValueError for fewer than 3 token counts."""
    if len(set(tokens.tolist())) < LEAST_HORIZONS:
        raise ValueError(f"{len(set(tokens.tolist()))} token counts; a law needs at least {LEAST_HORIZONS}")
    x, y = np.log(tokens), np.log(batches)
    shift = x - x.mean()
    exponent = float(shift @ y / (shift @ shift))
    constant = float(y.mean() - exponent * x.mean())
    freedom = len(x) - 2
    error = float(np.sqrt(((y - constant - exponent * x) ** 2).sum() / freedom / (shift @ shift)))
    edge = float(special.stdtrit(freedom, 0.5 + level / 2)) * error
    return BatchLaw(float(np.exp(constant)), exponent, exponent - edge, exponent + edge)
