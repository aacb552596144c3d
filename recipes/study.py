"""A sweep is a set of trials in one asset; a study declares runs, sweeps, corpora and gaps that answer one question."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recipes.gaps import Gap
from recipes.policies import HELDOUT_TASK
from recipes.records.data import Corpus
from recipes.records.placement import TrialOf
from recipes.records.reward_run import RewardRun
from recipes.records.run import AtStep, Run
from science.fit_sweep import FitConfig
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
            if isinstance(trial.start, AtStep) and trial.start.run.place == TrialOf(self.name):
                raise ValueError(f"sweep {self.name}: trial {trial.name} starts from a trial of the same sweep; use two sweeps")
        if self.budgets and len(self.budgets) != len(self.trials):
            raise ValueError(
                f"sweep {self.name}: {len(self.budgets)} budgets for {len(self.trials)} trials; give one a trial, or none"
            )
        placed = tuple(replace(trial, place=TrialOf(self.name)) for trial in self.trials)
        object.__setattr__(self, "trials", placed)

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


@dataclass(frozen=True)
class Study:
    """Functions whose declarations answer one question. Each is called separately, so a mistake disables only one."""

    question: str
    runs: tuple[Callable[[], Run], ...] = ()
    sweeps: tuple[Callable[[], Sweep], ...] = ()
    rewards: tuple[Callable[[], RewardRun], ...] = ()
    """Runs that learn from rewards."""

    corpora: tuple[Callable[[], Corpus], ...] = ()
    """Corpora that no run trains on, for comparison with others."""

    gaps: tuple[Callable[[], Gap], ...] = ()
    policies: tuple[Callable[[], Corpus], ...] = ()
    """Corpora whose sources are also marked by the published contamination policies, for comparison."""
