"""Fits of published tables, printed as Markdown: `python -m benchmarks.science.published_fits`.

Leave-future-out of the v16 law with the asymptote pinned and free, and the best half-life of Adam's second moment by batch.
Numbers and issues: `science/published.py`. Dated results: docs/design/science.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.power import PowerLaw, fit_free, fit_pinned
from science.published import BETA_SWEEPS, PINNED, V16, BetaSweep, half_life_tokens

LEVEL = 0.9
TARGET = 1e23


@dataclass(frozen=True)
class Refit:
    """A law of the first budgets. `following` is the next published loss: its budget, the loss, and the interval."""

    budgets: int
    law: PowerLaw
    following: tuple[float, float, tuple[float, float]]


@dataclass(frozen=True)
class HalfLife:
    """The best half-life grows as batch^exponent in all tables; half_width is that of the 90 % interval (Student's t)."""

    best: dict[tuple[int, int], float]
    """(width, batch) -> tokens, at the vertex of the parabola in ln(half-life) over all five values of beta2."""
    exponent: float
    half_width: float
    freedom: int


def leave_future_out(pinned: bool) -> list[Refit]:
    """The law fitted to the first i budgets, for each i that it can be fitted to."""
    budgets = [*V16.budgets, *V16.outcomes]
    losses = [*V16.losses, *V16.outcomes.values()]
    refits = []
    for count in range(3 if pinned else 4, len(V16.budgets) + 1):
        x, y = V16.budgets[:count], V16.losses[:count]
        law = fit_pinned(x, y, PINNED) if pinned else fit_free(x, y)
        refits.append(Refit(count, law, (budgets[count], losses[count], law.interval(budgets[count], LEVEL))))
    return refits


def half_lives(tables: Sequence[BetaSweep] = BETA_SWEEPS) -> HalfLife:
    """Least squares of ln(half-life) on ln(batch): one exponent, one constant a table."""
    best = {(table.width, batch): _vertex(table, batch) for table in tables for batch in sorted(table.rows)}
    own = [[float(width == table.width) for table in tables] for width, _ in best]
    columns = np.column_stack([np.array(own), np.log([batch for _, batch in best])])
    logs = np.log(list(best.values()))
    solution, *_ = np.linalg.lstsq(columns, logs, rcond=None)
    freedom = len(logs) - columns.shape[1]
    variance = float(((logs - columns @ solution) ** 2).sum()) / freedom * np.linalg.inv(columns.T @ columns)[-1, -1]
    return HalfLife(best, float(solution[-1]), float(special.stdtrit(freedom, 0.5 + LEVEL / 2) * np.sqrt(variance)), freedom)


def _vertex(table: BetaSweep, batch: int) -> float:
    lives = np.log([half_life_tokens(beta2, batch) for beta2 in table.beta2])
    square, line, _ = np.polyfit(lives, table.rows[batch], 2)
    return float(np.exp(-line / (2 * square)))


def best_losses(table: BetaSweep) -> tuple[np.ndarray, np.ndarray]:
    """(batches, losses): at the lowest published loss of each batch."""
    batches = sorted(table.rows)
    return np.array(batches, float), np.array([min(table.rows[batch]) for batch in batches])


def main() -> None:
    print(
        "| asymptote | budgets | A | exponent | next budget: loss, 90 % interval | at 1e23 | holds 2.234 |",
        "|---" * 7 + "|",
        sep="\n",
    )
    for refit in [*leave_future_out(pinned=True), *leave_future_out(pinned=False)]:
        law, (at, loss, (low, high)) = refit.law, refit.following
        near, far = law.interval(TARGET, LEVEL)
        name = f"{PINNED} pinned" if law.pinned else f"{law.asymptote:.3f} ± {law.half_width():.3f}"
        held = "yes" if near < V16.outcomes[TARGET] < far else "no"
        print(f"| {name} | {refit.budgets} | {law.amplitude:.2f} | {law.exponent:.4f} ", end="")
        print(f"| {at:.0e}: {loss:.3f}, {low:.3f} to {high:.3f} | {law.at(TARGET):.3f}, {near:.3f} to {far:.3f} | {held} |")
    lives = half_lives()
    print("\n| width | batch | best half-life, M tokens |", "|---" * 3 + "|", sep="\n")
    for (width, batch), tokens in lives.best.items():
        print(f"| {width} | {batch} | {tokens / 1e6:.0f} |")
    print(f"\nhalf-life as batch^({lives.exponent:.2f} ± {lives.half_width:.2f}), {lives.freedom} degrees of freedom")
    batches, losses = best_losses(BETA_SWEEPS[0])
    law = fit_free(1 / batches, losses)
    print(f"loss of {BETA_SWEEPS[0].width}: {law.asymptote:.4f} + {law.amplitude:.3g} batch^{law.exponent:.2f}")
    edge = special.stdtrit(law.freedom, 0.5 + LEVEL / 2)
    print(f"exponent ± {edge * law.covariance[2, 2] ** 0.5:.2f}, small batches ± {law.half_width():.4f}, {law.freedom} degree")


if __name__ == "__main__":
    main()
