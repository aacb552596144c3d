"""Record of a sweep: trials in one asset, which differ in their run specs."""

import re
from dataclasses import dataclass, field, replace

from recipes.records.placement import SwarmTrialOf, TrialOf, TrialPlace
from recipes.records.run import HELDOUT_TASK, AtStep, Run
from science.batch_stage import CriticalBatchConfig
from science.fit_sweep import FitConfig
from science.repetition_stage import RepetitionConfig
from trainer.spec.target import size_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Loss:
    """The score of a trial's result that its sweep compares; lower is better."""

    task: str = HELDOUT_TASK
    metric: str = "micro_bits_per_byte"
    unit: str = "bits a byte"


@dataclass(frozen=True)
class Sweep:
    """Trials that differ in their run specs. Each is a run that keeps its last checkpoint, and one partition of the assets
    `sweeps/<name>/trial` and `sweeps/<name>/result`; `sweeps/<name>/table` has a row for each."""

    name: str
    trials: tuple[Run, ...]
    budgets: tuple[float, ...] = ()
    """Training FLOPs that each trial should take, in the order of the trials; none: what the trainer counts."""

    loss: Loss = field(default_factory=Loss)
    law: FitConfig | None = None
    """How a law is fitted to the table, which makes the asset `sweeps/<name>/fit`; None: the sweep is for comparing alone."""

    max_missing: int = 0
    """More trials than this without a result, and there is no table."""

    crossed_seeds: bool = False
    """The trials cross seeds of initialization with seeds of data order (`recipes.sweeps.crossed`); then there is the asset
    `sweeps/<name>/seed_variance`."""

    critical_batch: CriticalBatchConfig | None = None
    """The trials are batches x rates over equal tokens; then there is the asset `sweeps/<name>/critical_batch`."""

    repetition: RepetitionConfig | None = None
    """Some trials repeat their data and others do not; then there is the asset `sweeps/<name>/repetition`."""

    place: SwarmTrialOf | None = None
    """Where trials of a swarm are placed; None: below `sweeps/<name>`."""

    def __post_init__(self) -> None:
        names = [trial.name for trial in self.trials]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if not names or twice:
            raise ValueError(f"sweep {self.name}: its trials are named {twice or names}; give at least one, each name once")
        for trial in self.trials:
            if not _NAME.fullmatch(trial.name):
                raise ValueError(
                    f"sweep {self.name}: trial {trial.name!r} is a partition key; use letters, digits, '.', '_' and '-'"
                )
            if len(trial.spec.saved_steps()) > 1:
                raise ValueError(
                    f"sweep {self.name}: trial {trial.name} keeps steps {trial.spec.saved_steps()}; a trial keeps its last: "
                    "set save_every_steps to None"
                )
            if isinstance(trial.start, AtStep) and trial.start.run.place == self.where:
                raise ValueError(f"sweep {self.name}: trial {trial.name} starts from a trial of the same sweep; use two sweeps")
        if self.budgets and len(self.budgets) != len(self.trials):
            raise ValueError(
                f"sweep {self.name}: {len(self.budgets)} budgets for {len(self.trials)} trials; give one a trial, or none"
            )
        placed = tuple(replace(trial, place=self.where) for trial in self.trials)
        object.__setattr__(self, "trials", placed)

    @property
    def where(self) -> TrialPlace:
        """The placement of the trials."""
        return self.place or TrialOf(self.name)

    @property
    def declared_budgets(self) -> tuple[float, ...]:
        """Training FLOPs of each trial, as declared or as counted from its spec."""
        return self.budgets or tuple(size_of(trial.spec).flops for trial in self.trials)

    def trial(self, name: str) -> Run:
        """Return the trial of a name. Raises: ValueError with some of the names."""
        for trial in self.trials:
            if trial.name == name:
                return trial
        some = ", ".join(trial.name for trial in self.trials[:5])
        raise ValueError(f"sweep {self.name} has no trial {name!r}; it has {len(self.trials)}, such as {some}")
