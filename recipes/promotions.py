"""Promotions that the lab keeps: a variant against its baseline, judged by two gates (docs/recipes/promote_a_variant.md).

A promotion is `promotions/<name>`. It reads results of trials, which `sweeps/<name>/result` makes.
"""

from dataclasses import dataclass

from lineage.build.nodes import Node
from recipes.records.sweep import Sweep
from recipes.sweeps import fit, result
from science.gates import Gates
from science.promotion_stage import PROMOTION, PromotionConfig


@dataclass(frozen=True)
class Promotion:
    """A variant and its baseline as two sweeps of equal length: the first trial of one is paired with that of the other."""

    name: str
    law: Sweep
    """The baseline's sweep over budgets, which declares a law. Its repeats give the noise of a run."""
    baseline: Sweep
    variant: Sweep
    gates: Gates
    """The sizes are names of trials of the baseline. The asymptote is in the unit of the sweeps' loss."""

    def __post_init__(self) -> None:
        if self.law.law is None:
            raise ValueError(f"promotion {self.name}: sweep {self.law.name} declares no law; give it a FitConfig")
        one, other = len(self.baseline.trials), len(self.variant.trials)
        if one != other:
            raise ValueError(
                f"promotion {self.name}: {self.baseline.name} has {one} trials, {self.variant.name} has {other}; pair them"
            )
        losses = {sweep.loss for sweep in (self.law, self.baseline, self.variant)}
        if len(losses) > 1:
            raise ValueError(f"promotion {self.name}: its sweeps compare {len(losses)} different losses; declare one")
        _ = self.config  # checks the gates' sizes

    @property
    def config(self) -> PromotionConfig:
        """The config of the stage."""
        loss, sizes = self.law.loss, tuple(trial.name for trial in self.baseline.trials)
        return PromotionConfig(sizes, loss.task, loss.metric, loss.unit, self.gates)


def promotion_node(promotion: Promotion) -> Node:
    """The verdict as an artifact."""
    inputs = {
        "fit": fit(promotion.law),
        "baselines": tuple(result(trial) for trial in promotion.baseline.trials),
        "variants": tuple(result(trial) for trial in promotion.variant.trials),
    }
    return Node(("promotions", promotion.name), None, PROMOTION, promotion.config, inputs)
