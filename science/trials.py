"""A trial's result as the fits read it, and the faults for which a sweep is refused, each by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from science.laws.fit import Points

FLOP_TOLERANCE = 0.01
LEAST_BUDGETS, LEAST_SIZES = 3, 4


@dataclass(frozen=True)
class Trial:
    """One run of a sweep. A trial that diverged has no loss; it is a result and not a failure."""

    name: str
    budget: float
    """Training FLOPs that the sweep declares."""
    flops: float
    """Training FLOPs by the trainer's own count."""
    width: int
    parameters: int
    """Without embedding and head."""
    tokens: float
    loss: float | None
    """Held-out loss; None if the run diverged."""
    learning_rate: float
    batch_tokens: int
    seed: int
    vocabulary: str
    """Digest of the tokenizer."""
    policy: str
    """Digest of the evaluation policy."""
    schedule_end: float = 0.0
    """Learning rate at the last step as a share of the peak: what was not decayed is not comparable."""
    epochs: float = 1.0
    """Most times that any source was read; above 1, data repeats."""
    beta2: float = 0.95
    status: Literal["done", "diverged"] = "done"

    def __post_init__(self) -> None:
        if (self.loss is None) != (self.status == "diverged"):
            raise ValueError(f"trial {self.name}: loss {self.loss} with status {self.status!r}; only a diverged trial has none")
        if self.loss is not None and not (np.isfinite(self.loss) and self.loss > 0):
            raise ValueError(f"trial {self.name}: loss is {self.loss}; it must be finite and above 0, or None if diverged")


@dataclass(frozen=True)
class Fault:
    """Why a sweep cannot be fitted."""

    name: str
    what: str


class RefusedSweepError(ValueError):
    """A sweep that no law is fitted to; `faults` says why, one by one."""

    def __init__(self, faults: Sequence[Fault]):
        super().__init__("; ".join(f"{fault.name}: {fault.what}" for fault in faults))
        self.faults = tuple(faults)


def done(trials: Iterable[Trial]) -> list[Trial]:
    """Trials with a loss, in a fixed order."""
    return sorted((trial for trial in trials if trial.loss is not None), key=lambda trial: trial.name)


def table_faults(trials: Sequence[Trial]) -> list[Fault]:
    """What makes trials incomparable or too few, without looking at their losses."""
    kept = done(trials)
    faults = [*mixed(kept)]
    for trial in kept:
        if abs(trial.flops / trial.budget - 1) > FLOP_TOLERANCE:
            off = 100 * (trial.flops / trial.budget - 1)
            faults.append(
                Fault(
                    "flops_off", f"{trial.name} took {trial.flops:.4g} of {trial.budget:.4g} FLOPs ({off:+.1f} %); at most 1 %"
                )
            )
    budgets = sorted({trial.budget for trial in kept})
    if len(budgets) < LEAST_BUDGETS:
        faults.append(Fault("too_few_budgets", f"{len(budgets)} of at least {LEAST_BUDGETS}"))
    for budget in budgets:
        sizes = {trial.parameters for trial in kept if trial.budget == budget}
        if len(sizes) < LEAST_SIZES:
            faults.append(Fault("too_few_sizes", f"budget {budget:.3g} has {len(sizes)} of at least {LEAST_SIZES}"))
        ends = sorted({trial.schedule_end for trial in kept if trial.budget == budget})
        if len(ends) > 1:
            faults.append(
                Fault("unequal_schedule_ends", f"budget {budget:.3g} ends at {ends} of the peak rate; decay all alike")
            )
    return faults


def mixed(trials: Sequence[Trial]) -> Iterable[Fault]:
    """Trials of several tokenizers or policies."""
    for field, name in (("vocabulary", "mixed_vocabularies"), ("policy", "mixed_policies")):
        values = sorted({getattr(trial, field) for trial in trials})
        if len(values) > 1:
            yield Fault(name, f"{', '.join(values)}; fit each apart")


def points_of(trials: Sequence[Trial]) -> Points:
    """The trials with a loss as points. Trials that differ in nothing but the seed are repeats."""
    kept = done(trials)
    recipes = [(t.budget, t.parameters, t.tokens, t.learning_rate, t.batch_tokens, t.beta2) for t in kept]
    order = {recipe: index for index, recipe in enumerate(dict.fromkeys(recipes))}
    return Points(
        np.array([trial.parameters for trial in kept], float),
        np.array([trial.tokens for trial in kept], float),
        np.array([[trial.loss for trial in kept]], float),
        np.array([order[recipe] for recipe in recipes]),
        np.array([trial.budget for trial in kept], float),
    )
