"""Known laws at the lab's scale, simulated sweeps, and the coverage of intervals in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from science.laws.calibrate import two_terms
from science.laws.fit import Points

type Law = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(parameters, tokens) -> nats."""
LAB = (
    (39_500, 0.34e6), (62_000, 0.53e6), (89_000, 0.74e6), (154_000, 1.23e6),
    (282_000, 2.31e6), (430_000, 3.3e6), (640_000, 5.07e6), (1_240_000, 9.47e6),
)  # fmt: skip
"""(parameters, training FLOPs a token) of the lab's family, widths 16 to 128 with a vocabulary of 2,048."""
ANCHOR = (89_000.0, 1.36e6, 4.60)
"""A measured trial of 1e12 FLOPs: parameters, tokens, held-out nats. Laws are rescaled to go through it."""
FLOOR = 2.0
"""Asymptote of the rescaled laws, in nats."""


@dataclass(frozen=True)
class KnownLaw:
    """A law with known constants."""

    name: str
    loss: Law
    form: str
    """The form that it has, of `science.laws.forms`; empty if none of them."""


def known_laws() -> tuple[KnownLaw, ...]:
    """Hoffmann's exponents, the corrected refit's, a law of Farseer's kind, and one whose learning rate misses by size."""
    hoffmann, refit = _sum_law(0.3392, 0.2849), _sum_law(0.3478, 0.3658)
    n0, d0, loss = ANCHOR

    def farseer(n: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The exponent of tokens falls 2 % an e-fold of size; the size term approaches its floor as a bent power."""
        x, y = np.log(n / n0), np.log(d / d0)
        beta = 0.3658
        part = (loss - FLOOR) * 0.3478 / (0.3478 + beta)
        size = (loss - part) * np.exp(-0.17 * (np.exp(-0.2 * x) - 1) / -0.2)
        return size + part * np.exp(-beta * np.exp(-0.02 * x) * y)

    def penalized(n: np.ndarray, d: np.ndarray) -> np.ndarray:
        return refit(n, d) + 0.004 * np.log(n / 6e4) ** 2

    return (
        KnownLaw("chinchilla", hoffmann, "chinchilla"),
        KnownLaw("refit", refit, "chinchilla"),
        KnownLaw("farseer", farseer, "farseer"),
        KnownLaw("learning rate", penalized, ""),
    )


def _sum_law(alpha: float, beta: float) -> Law:
    """E + A N^-alpha + B D^-beta through the anchor, with its optimum at the anchor's size."""
    n0, d0, loss = ANCHOR
    size = (loss - FLOOR) * beta / (alpha + beta)
    return lambda n, d: FLOOR + size * (n / n0) ** -alpha + (loss - FLOOR - size) * (d / d0) ** -beta


def best_size(law: Law, flops: float) -> tuple[float, float]:
    """(parameters, tokens) of the lowest loss at a budget, with the lab's FLOPs a token by size."""
    sizes, costs = np.log(np.array(LAB)).T
    n = np.linspace(sizes[0], sizes[-1] + 1.5, 600)
    slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
    cost = np.where(n > sizes[-1], costs[-1] + slope * (n - sizes[-1]), np.interp(n, sizes, costs))
    losses = law(np.exp(n), flops / np.exp(cost))
    at = int(np.argmin(losses))
    return float(np.exp(n[at])), float(flops / np.exp(cost[at]))


def design(budgets: Sequence[float] = (1e12, 2e12, 4e12, 8e12), sizes: int = 6, repeats: int = 2) -> Points:
    """The isoflop sweep of the lab: windows of sizes that move up with the budget, more seeds at each centre."""
    rows = []
    for step, budget in enumerate(budgets):
        start = min(step, len(LAB) - sizes) if sizes < len(LAB) else 0
        for index, (parameters, cost) in enumerate(LAB[start : start + sizes]):
            group = step * sizes + index
            rows += [(parameters, budget / cost, group, budget)] * (1 + repeats * (index == sizes // 2 - 1))
    parameters, tokens, groups, chosen = np.array(rows).T
    return Points(parameters, tokens, np.ones((1, len(rows))), groups.astype(int), chosen)


def simulate(law: Law, points: Points, sweeps: int, sigma: float, random: np.random.Generator) -> Points:
    """Sweeps of a law with two noise terms; `sigma` is the standard deviation of a run's loss in nats."""
    truth = law(points.parameters, points.tokens)
    return points.with_losses(truth + two_terms(random, sigma, (sweeps, len(truth))))
