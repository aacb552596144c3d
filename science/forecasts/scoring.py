"""The interval score of forecasts beside simpler rules; `science.forecasts.joint` tests their errors together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.fit_sweep import SweepFit
from science.laws.power import fit_pinned

LEVEL = 0.9


@dataclass(frozen=True)
class Rule:
    """A way to predict, with its mean interval score (lower is better) and mean half-width."""

    name: str
    score: float
    half_width: float


def interval_score(low: float, high: float, measured: float, level: float = LEVEL) -> float:
    """Width, and what lies outside by 2 / (1 - level) (Gneiting and Raftery 2007, JASA 102, equation 43)."""
    outside = max(low - measured, 0.0) + max(measured - high, 0.0)
    return high - low + 2 / (1 - level) * outside


def rules(
    fitted: SweepFit, intervals: Sequence[tuple[float, float]], budgets: Sequence[float], measured: Sequence[float], pin: float
) -> list[Rule]:
    """The forecast beside two rules: the last budget's lowest loss, and the law of the minima with a pinned asymptote.

    The first has the interval of a repeat of that run, the second its own t interval.
    """
    points, noise = fitted.points, fitted.noise
    last = float(points.losses[0][points.budgets == points.budgets.max()].min())
    edge = float(special.stdtrit(noise.freedom, 0.5 + LEVEL / 2)) * float(noise.sigma[0]) * np.sqrt(2)
    losses = np.array([valley.loss for valley in fitted.minima])
    law = fit_pinned(np.array([valley.budget for valley in fitted.minima]), losses, pin)
    candidates = {
        "the forecast": list(intervals),
        "the last budget's lowest loss": [(last - edge, last + edge)] * len(measured),
        f"the minima's law pinned at {pin:g}": [law.interval(budget, LEVEL) for budget in budgets],
    }
    return [
        Rule(
            name,
            float(np.mean([interval_score(*each, value) for each, value in zip(given, measured, strict=True)])),
            float(np.mean([(high - low) / 2 for low, high in given])),
        )
        for name, given in candidates.items()
    ]


def better(scored: Sequence[Rule]) -> list[str]:
    """Names of the rules whose score the first one beats."""
    return [rule.name for rule in scored[1:] if scored[0].score < rule.score]
