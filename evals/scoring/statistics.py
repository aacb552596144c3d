"""What a score says: a share over items attempted, with bounds that hold for any outcome of the ungraded items.

The estimand of a share is success over the items attempted. Items without a verdict (longer than the context, an answer
that could not be parsed) are neither right nor wrong. So the point is the share of the graded ones, and the interval
spans the worst and the best that the others could be (Imbens and Manski 2004, with Wilson's bounds); with full coverage
it is Wilson's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.items.task import Metric
from evals.scoring.intervals import mean_bootstrap, ratio_bootstrap, wilson
from evals.scoring.records import Score

COVERAGE_FLOOR = 0.9
"""A result that graded less than this share of what it attempted is shown as incomplete, never ranked."""


def share_score(task: str, metric: str, right: int, graded: int, attempted: int) -> Score:
    """Return the share of right items. Raises: ValueError for invalid counts, or if nothing was graded."""
    if not 0 <= right <= graded <= attempted or graded == 0:
        raise ValueError(f"{task} {metric}: {right} right of {graded} graded of {attempted} attempted give no share")
    low, _ = wilson(right, attempted)
    _, high = wilson(right + attempted - graded, attempted)
    return Score(task, metric, right / graded, low, high, graded, attempted)


def metric_score(
    task: str, metric: Metric, values: Sequence[float], attempted: int, seed: int, weights: Sequence[float] | None = None
) -> Score:
    """Return the score of a task's own metric over the values of the graded items; `weights` are those of a ratio.

    Raises: ValueError if there is no value, or if a value of a share is neither 0 nor 1.
    """
    if metric.summary == "share":
        if odd := next((value for value in values if value not in (0, 1)), None):
            raise ValueError(f"{task} {metric.name}: a value is {odd}; the values of a share are 0 and 1, use summary='mean'")
        return share_score(task, metric.name, int(sum(values)), len(values), attempted)
    if metric.summary == "ratio":
        assert weights is not None
        bounds = ratio_bootstrap(np.asarray(values, np.float64), np.asarray(weights, np.float64), seed)
        return Score(task, metric.name, *bounds, len(values), attempted)
    value, low, high = mean_bootstrap(np.asarray(values, np.float64), seed)
    if metric.summary == "perplexity":
        value, low, high = math.exp(value), math.exp(low), math.exp(high)
    return Score(task, metric.name, value, low, high, len(values), attempted)


def is_incomplete(graded: int, attempted: int) -> bool:
    """Whether too little was graded to compare the score with others."""
    return graded < COVERAGE_FLOOR * attempted


def graded_of(graded: int, attempted: int) -> str:
    """Return how many items a score is over, as text: "50", or "48 of 50", or "40 of 50, incomplete"."""
    if graded == attempted:
        return f"{graded:,}"
    return f"{graded:,} of {attempted:,}" + (", incomplete" if is_incomplete(graded, attempted) else "")


@dataclass(frozen=True)
class Comparison:
    """Two results on the same items: the mean difference (second less first), its interval, a p-value for no
    difference.

    `wins` and `losses` count items on which the second is better and worse; ties tell nothing (McNemar's test for
    verdicts, the sign test for numbers: both are the exact binomial of wins among them).
    """

    num_items: int
    difference: float
    low: float
    high: float
    wins: int
    losses: int
    p_value: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p-value of so uneven a count if both were equally likely (Dixon & Mood 1946), in whole
    numbers.

    `scipy.stats` has it and takes a second to import, in every process that loads the lab's assets.

    >>> sign_test(1, 9)
    0.021484375
    """
    trials, term, tail = wins + losses, 1, 0
    for number in range(min(wins, losses) + 1):
        tail += term
        term = term * (trials - number) // (number + 1)
    return min(1.0, 2 * tail / (1 << trials))


def compare_paired(first: Sequence[float], second: Sequence[float], seed: int, *, higher_is_better: bool) -> Comparison:
    """Compare values of the same items in the same order (1 and 0 for verdicts, bits per byte for likelihoods).

    Raises: ValueError if their numbers differ, or if there is none, or one is not finite.
    """
    before, after = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if before.shape != after.shape or before.size == 0:
        raise ValueError(f"{before.size} and {after.size} values cannot be paired; give one of each for every item")
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise ValueError("a value is not finite; leave out items without a verdict on either side")
    change = after - before
    gains = change if higher_is_better else -change
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    return Comparison(before.size, *mean_bootstrap(change, seed), wins, losses, sign_test(wins, losses))
