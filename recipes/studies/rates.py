"""A small sweep over peak learning rates: the shortest example of trials."""

from dataclasses import replace

from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies.default import tiny
from recipes.study import Study
from trainer.spec.schedules import WarmupStableDecay

RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def study() -> Study:
    return Study("Which peak learning rate suits `tiny`?", sweeps=(tiny_rates,))


def tiny_rates() -> Sweep:
    return Sweep("tiny_rates", tuple(at_rate(rate) for rate in RATES))


def at_rate(rate: float) -> Run:
    """`tiny` at a peak rate; a trial keeps only its last checkpoint."""
    base = tiny()
    assert isinstance(base.spec.schedule, WarmupStableDecay)
    schedule = replace(base.spec.schedule, peak_learning_rate=rate)
    return replace(base, spec=replace(base.spec, name=f"lr{rate:g}", schedule=schedule, save_every_steps=None))
