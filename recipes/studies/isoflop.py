"""Isoflop curves over the default corpus, and two runs that their law forecasts.

`make isoflop` does the same over one steady source, from rates to verdicts; this study is for the UI.
"""

from dataclasses import replace
from functools import cache

from recipes.forecasts import Forecast
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies.small_models import at_budget
from recipes.study import Study
from science.fit_sweep import FitConfig

BUDGETS = {
    1e12: (16, 24, 32, 48, 64, 80),
    2e12: (24, 32, 48, 64, 80, 96),
    4e12: (24, 32, 48, 64, 80, 96),
    8e12: (32, 48, 64, 80, 96, 128),
}
CENTRES = {1e12: 32, 2e12: 48, 4e12: 48, 8e12: 64}
SEEDS_AT_CENTRE = 3


def study() -> Study:
    """The sweep, and two runs outside it: at 2.5 and at 5 times its largest budget."""
    return Study(
        "Which size is best at a budget, and what does that say of larger ones?",
        runs=(isoflop_2x5, isoflop_5x),
        sweeps=(isoflop,),
    )


@cache
def isoflop() -> Sweep:
    """Four budgets x six widths, three seeds at each centre."""
    named = [
        (f"{budget_name(budget)}-d{width}-s{seed}", width, budget, seed)
        for budget, widths in BUDGETS.items()
        for width in widths
        for seed in range(SEEDS_AT_CENTRE if width == CENTRES[budget] else 1)
    ]
    trials = tuple(at_budget(name, width, budget, seed=seed) for name, width, budget, seed in named)
    law = FitConfig(metric="micro_bits_per_byte of held-out text", unit="bits a byte")
    return Sweep("isoflop", trials, budgets=tuple(budget for _, _, budget, _ in named), law=law)


def isoflop_2x5() -> Run:
    """2.5 times the largest fitted budget."""
    return _forecast("isoflop_2x5", 80, 2e13)


def isoflop_5x() -> Run:
    """5 times the largest fitted budget."""
    return _forecast("isoflop_5x", 96, 4e13)


def _forecast(name: str, width: int, budget: float) -> Run:
    forecast = Forecast(name, isoflop(), beyond="small sources of the default corpus repeat at this budget")
    return replace(at_budget(name, width, budget, seed=100), forecast=forecast)


def budget_name(budget: float) -> str:
    """`c1e12`: a budget in the name of a trial."""
    return f"c{budget:.0e}".replace("+", "")
