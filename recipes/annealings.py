"""Microannealing: short branches from one checkpoint over several mixes and seeds, compared in pairs."""

from dataclasses import dataclass, replace
from functools import cached_property

from lineage.build.nodes import Node
from lineage.order.mixture import StepPhase
from recipes.records.placement import SwarmTrialOf
from recipes.records.run import AtStep, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix
from recipes.sweeps import compared_scores, results
from science.annealing_stage import ANNEALING, AnnealingConfig

FAMILY = "annealings"


@dataclass(frozen=True)
class Annealing:
    """Branches `<mix>-s<seed>` of one checkpoint; assets `annealings/<name>/mixture`, `/trial`, `/result` and `/verdict`."""

    name: str
    branch: Run
    """What every branch is but for its weights and its data order: it starts from the checkpoint and keeps its last step."""

    mixes: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    """Name and weights by source of each mix, the control first. The sources are those of the branch's tokens."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the data order. A seed is one pair: the mix and the control in that order."""

    targets: tuple[str, ...] = ()
    """Tags of held-out text that are compared, such as `code`; none: all held-out text together."""

    metric: str = "bits_per_byte"
    unit: str = "bits a byte"
    level: float = 0.95

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        if not isinstance(self.branch.start, AtStep):
            raise ValueError(
                f"annealing {self.name}: its branch starts from {self.branch.start}; give a step of a declared run"
            )
        _ = self.config, self.trials  # both check their parts

    @property
    def config(self) -> AnnealingConfig:
        """The config of the verdict."""
        names = tuple(name for name, _ in self.mixes)
        return AnnealingConfig(names, self.seeds, *compared_scores(self.targets, self.metric), self.unit, self.level)

    @cached_property
    def trials(self) -> Sweep:
        """Every branch, all seeds of a mix together."""
        runs = tuple(self._run(name, weights, seed) for name, weights in self.mixes for seed in self.seeds)
        return Sweep(self.name, runs, place=SwarmTrialOf(self.name, family=FAMILY))

    def _run(self, mix: str, weights: tuple[tuple[str, float], ...], seed: int) -> Run:
        name, data = f"{mix}-s{seed}", self.branch.data
        own = Mix(name, data.tokens, (StepPhase(0, weights),), data.block_size, order_seed=seed)
        return replace(self.branch, spec=replace(self.branch.spec, name=name, seed=seed), data=own)


def annealing_verdict(of: Annealing) -> Node:
    """Whether each mix is better than the control."""
    return Node((FAMILY, of.name, "verdict"), None, ANNEALING, of.config, {"results": results(of.trials)})
