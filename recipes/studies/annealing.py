"""Which text does the end of a training need? Branches of the last step of `tiny` over three mixes, in pairs.

The rate falls to 0 over the branch, as in a final phase. The targets are held-out text of two kinds.
"""

from dataclasses import replace

from recipes.annealings import Annealing
from recipes.records.run import AtStep, Run
from recipes.studies.default import tiny
from recipes.study import Study
from trainer.spec.config import WarmStart
from trainer.spec.schedules import WarmupStableDecay

STEPS, BLOCK = 30, 240
"""Steps of a branch, and its sequences: a block is the whole branch, so its weights hold exactly."""
EVEN = (("stdlib_code", 0.25), ("sotu", 0.25), ("wiki", 0.25), ("math_docstrings", 0.25))
PROSE = (("stdlib_code", 0.1), ("sotu", 0.4), ("wiki", 0.4), ("math_docstrings", 0.1))
CODE = (("stdlib_code", 0.4), ("sotu", 0.1), ("wiki", 0.1), ("math_docstrings", 0.4))


def study() -> Study:
    return Study("Which text does the end of a training need?", annealings=(tiny_annealing,))


def tiny_annealing() -> Annealing:
    """Three mixes, three orders of each."""
    mixes = (("even", EVEN), ("prose", PROSE), ("code", CODE))
    return Annealing("tiny_end", annealed(), mixes, targets=("prose/sotu", "code"))


def annealed() -> Run:
    """30 steps from the end of `tiny` with fresh moments; the rate falls from that of its last step to 0."""
    before = tiny()
    schedule = WarmupStableDecay(peak_learning_rate=4e-4, warmup_steps=3, decay_frac=0.9, min_lr_ratio=0.0)
    spec = replace(before.spec, name="annealed", schedule=schedule, num_steps=STEPS, save_every_steps=None, start=WarmStart())
    mix = replace(before.data, name="annealed", block_size=BLOCK)
    return replace(before, spec=spec, data=mix, start=AtStep(before, before.spec.num_steps))
