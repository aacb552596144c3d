"""An average of the weights, evaluated beside them."""

from dataclasses import replace

from recipes.records.run import Run
from recipes.studies.default import tiny
from recipes.study import Study
from trainer.spec.optimizers import EmaConfig
from trainer.spec.schedules import WarmupStableDecay


def study() -> Study:
    return Study("What does an average of the weights gain at a constant rate?", runs=(tiny_averaged,))


def tiny_averaged() -> Run:
    """`tiny` at a constant rate, with an average of its weights over about 33 steps."""
    base = tiny()
    schedule = WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=40, decay_frac=0.0, min_lr_ratio=1.0)
    return replace(base, spec=replace(base.spec, name="tiny_averaged", schedule=schedule, ema=EmaConfig(0.97)))
