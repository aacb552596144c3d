"""The mixtures of a swarm's second round: near the predicted optimum, as far from it as the fits are unsure.

Bootstrapped Thompson sampling (Eckles and Kaptein 2014, arXiv 1410.4009): the runs are drawn again with replacement, the
metrics are fitted to them, and a few trials are placed by the lowest point of that surface. Where the runs determine the
optimum, the draws agree; where they do not, the trials lie apart. The trials of a draw lie on the way from its lowest point to
mixtures of round one, because runs at one point alone say nothing of the slope there. No two trials of a round are closer than
`APART`: what a mixture says twice is what repeats at the anchors are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from science.mixtures.designs import within
from science.mixtures.propose import fit_metrics, lowest, mean_of
from science.mixtures.surrogates import Predictor

MOST_DRAWS = 100
"""Draws of runs until one has every source."""
APART = 0.005
"""Share of the tokens in which two mixtures of a round differ at least: half of the sum of absolute differences."""
WAY = np.linspace(0, 1, 201)[1:]
"""Where a trial that is too close to another may go, as shares of the way to a mixture of round one."""


@dataclass(frozen=True)
class NextMixtures:
    """How many mixtures the second round has, and how far they lie from the lowest points."""

    count: int
    apart: tuple[float, ...] = (0.0, 0.3)
    """Where the trials of a draw lie, as shares of the way from its lowest point to a mixture of round one."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"second round: count is {self.count}; it has at least 1 trial")
        if not self.apart or not all(0 <= share <= 1 for share in self.apart):
            raise ValueError(f"second round: apart is {self.apart}; give at least one share of the way, each in 0..1")


@dataclass(frozen=True)
class NextRound:
    """The mixtures of a round, and what round one says of each."""

    weights: np.ndarray
    """(trials, sources)."""
    predicted: np.ndarray
    """(trials,): mean metric by the fits to all runs."""
    spread: np.ndarray
    """(trials,): standard deviation of the mean metric over the surfaces of drawn runs."""
    optimum: np.ndarray
    """(sources,): what round one alone would propose."""


def next_round(
    weights: np.ndarray,
    metrics: Mapping[str, np.ndarray],
    reference: np.ndarray,
    limits: np.ndarray,
    config: NextMixtures,
    seed: int,
) -> NextRound:
    """Choose the mixtures of the second round from the runs of the first, within caps.

    `weights` is (runs, sources), `metrics` has (runs,) by name. Raises: ValueError as `fit_metrics` does, and for more
    trials than there are distinct mixtures.
    """
    surface = mean_of(list(fit_metrics(weights, metrics).values()))
    draws, places = np.random.default_rng(seed).spawn(2)
    each, turn = np.divmod(np.arange(config.count), len(config.apart))
    drawn = [_drawn_surface(weights, metrics, draws) for _ in range(each[-1] + 1)]
    lows = np.stack([lowest(of, weights, reference, limits, draws) for of in drawn])
    share, others = np.array(config.apart)[turn][:, None], places.integers(0, len(weights), config.count)
    chosen = distinct(within((1 - share) * lows[each] + share * weights[others], limits), others, weights, limits)
    spread = np.std([of(chosen) for of in drawn], axis=0)
    return NextRound(chosen, surface(chosen), spread, lowest(surface, weights, reference, limits, draws))


def distinct(chosen: np.ndarray, others: np.ndarray, designs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Move each mixture that is too close to one before it, as little as it takes, towards a design.

    `chosen` is (trials, sources), `others` (trials,) the design to try first; the designs after it follow.
    Raises: ValueError if no place on any of these ways is far enough from the others.
    """
    kept = chosen.copy()
    for trial in range(1, len(kept)):
        before, here = kept[:trial], kept[trial]
        if _apart(here[None], before)[0] >= APART:
            continue
        for place in range(len(designs)):
            towards = designs[(others[trial] + place) % len(designs)]
            way = within(here + WAY[:, None] * (towards - here), limits)
            if (free := np.flatnonzero(_apart(way, before) >= APART)).size:
                kept[trial] = way[free[0]]
                break
        else:
            raise ValueError(
                f"second round: no place for trial {trial + 1} of {len(kept)} that differs from the others in {APART:.1%} of "
                "the tokens, within the caps; ask for fewer trials or allow more epochs"
            )
    return kept


def _apart(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Of each of these, the share of tokens in which the nearest of those differs."""
    return 0.5 * np.abs(these[:, None] - those).sum(axis=-1).min(axis=1)


def _drawn_surface(weights: np.ndarray, metrics: Mapping[str, np.ndarray], random: np.random.Generator) -> Predictor:
    """The mean metric by fits to drawn runs."""
    rows = _drawn_runs(weights, random)
    return mean_of(list(fit_metrics(weights[rows], {name: losses[rows] for name, losses in metrics.items()}).values()))


def _drawn_runs(weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Rows that are drawn with replacement and have every source; all rows if no draw has that."""
    for _ in range(MOST_DRAWS):
        rows = random.integers(0, len(weights), len(weights))
        if (weights[rows].max(axis=0) > 0).all():
            return rows
    return np.arange(len(weights))
