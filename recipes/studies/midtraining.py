"""Does a ladder of small models say what midtraining does to a larger one? Branches of each rung over prose.

The largest rung's branch is a declared run with a frozen forecast from the branches of the four smaller ones.
"""

from dataclasses import replace
from functools import cache

from lineage.order.mixture import StepPhase
from recipes.forecasts import LadderForecast
from recipes.records.run import AtStep, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix
from recipes.studies.small_models import BATCH, small_mix, small_model, small_rate, small_run
from recipes.study import Study
from trainer.spec.config import WarmStart
from trainer.spec.schedules import WarmupStableDecay

STEPS = {16: 200, 24: 300, 32: 400, 48: 600, 64: 800}
"""Steps by width: tokens grow with the width, parameters faster."""
LARGEST, SHARE, ORDERS = 64, 5, (0, 1)
"""A branch has a fifth of the steps before it."""
PROSE = (("kjv", 0.4), ("sotu", 0.4), ("stdlib_html", 0.2))


def study() -> Study:
    return Study(
        "What does midtraining on prose do to a larger model?", runs=(rung_64_prose,), sweeps=(ladder_rungs, ladder_prose)
    )


@cache
def ladder_rungs() -> Sweep:
    """The models that branches start from."""
    runs = (small_run(f"d{width}", small_model(width), steps, small_rate(width)) for width, steps in STEPS.items())
    return Sweep("ladder_rungs", tuple(runs))


@cache
def ladder_prose() -> Sweep:
    """Branches of all rungs but the largest, in two data orders."""
    widths = [width for width in STEPS if width != LARGEST]
    return Sweep("ladder_prose", tuple(branch(f"d{width}-o{order}", width, order) for width in widths for order in ORDERS))


def rung_64_prose() -> Run:
    """The branch of the largest rung, which cannot start before its forecast."""
    return replace(branch("rung_64_prose", LARGEST, ORDERS[-1] + 1), forecast=LadderForecast("rung_64_prose", ladder_prose()))


def branch(name: str, width: int, order: int) -> Run:
    """The midtraining of a rung in a data order; the rate falls from a tenth of the rung's to 0."""
    rung = ladder_rungs().trial(f"d{width}")
    steps = STEPS[width] // SHARE
    schedule = WarmupStableDecay(0.1 * small_rate(width), warmup_steps=4, decay_frac=0.9, min_lr_ratio=0.0)
    spec = replace(rung.spec, name=name, num_steps=steps, schedule=schedule, seed=order, start=WarmStart())
    mix = Mix(f"midtraining-o{order}", small_mix().tokens, (StepPhase(0, PROSE),), BLOCK, order_seed=order)
    started = AtStep(rung, rung.spec.num_steps)
    return Run(spec, mix, rung.evaluation, start=started, execution=rung.execution)


BLOCK = BATCH * 40
"""Sequences of the shortest branch."""
