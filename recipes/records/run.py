"""Records of training: a run with its start, evaluation and execution."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from datakit.tokens.formats import Preferences
from lineage.build.nodes import Node
from lineage.order.batches import BatchSchedule
from recipes.hardware import alternatives
from recipes.models import PublishedModel
from recipes.records.data import Corpus, Decontamination, Scope
from recipes.records.narrowing import Narrowing
from recipes.records.placement import CANONICAL, Placement
from recipes.records.tokens import Mix, Tokens
from recipes.suites import Suite
from trainer.spec.config import RunSpec
from trainer.spec.objectives import Dpo
from trainer.spec.settings import RuntimeOptions

HELDOUT_TASK = "heldout"
"""The task of the loss on held-out text."""


@dataclass(frozen=True)
class Evaluation:
    """Suites and hardware of evaluations. The first suite is the main one (`recipes/policies.py`)."""

    suites: tuple[Suite, ...]
    shots: tuple[Suite, ...] = ()
    """Suites that hold the examples of few-shot prompts."""

    hardware: tuple[str, ...] = ("cpu",)
    """One host, in order of preference; no part of any identity."""

    pairs: Tokens | None = None
    """Held-out preference pairs, for a run of the objective `dpo`."""

    def __post_init__(self) -> None:
        if not self.suites:
            raise ValueError("evaluation.suites is empty; give at least one suite of recipes/suites.py")
        for shape in alternatives(self.hardware):
            if shape.pods > 1:
                raise ValueError(f"evaluation.hardware has {shape.name}, which is {shape.pods} hosts; evaluations run on one")


@dataclass(frozen=True)
class Execution:
    """How a run is executed: hardware in order of preference, and settings. No part of any identity."""

    hardware: tuple[str, ...] = ("cpu",)
    settings: RuntimeOptions = field(default_factory=RuntimeOptions)
    """Trackers, evaluation during training, profile, meshes."""

    def __post_init__(self) -> None:
        alternatives(self.hardware)
        if strange := sorted(dict(self.settings.meshes).keys() - set(self.hardware)):
            raise ValueError(
                f"execution.settings.meshes has a mesh for {strange[0]}, which is not in execution.hardware "
                f"({', '.join(self.hardware)}); remove it or add the hardware"
            )

    @property
    def meshes(self) -> dict[str, str]:
        """The mesh of each hardware that has one: from the settings, else the hardware's default."""
        presets = {shape.name: shape.mesh for shape in alternatives(self.hardware) if shape.mesh}
        return presets | dict(self.settings.meshes)


@dataclass(frozen=True)
class AtStep:
    """The checkpoint of a declared run at a step, as a start for another run."""

    run: "Run"
    step: int

    def __post_init__(self) -> None:
        if self.step not in self.run.spec.saved_steps():
            saved = ", ".join(map(str, self.run.spec.saved_steps()))
            raise ValueError(f"start at step {self.step} of run {self.run.name}, which keeps steps {saved}; choose one of them")


class ForecastRecord(Protocol):
    """What is said of a run before it starts; `recipes/forecasts.py` has the record."""

    @property
    def name(self) -> str:
        """Name of the forecast."""

    def node(self, run: "Run") -> Node:
        """The artifact that the checkpoints of the run take as an input."""


class ProposalRecord(Protocol):
    """What chose a trial; `recipes/searches.py` has the record."""

    def node(self) -> Node:
        """The artifact that the checkpoint of the trial takes as an input."""


@dataclass(frozen=True)
class Run:
    """One training job: the trainer's spec, its data, its start, its evaluation, its execution, and where it is placed."""

    spec: RunSpec
    data: Mix
    evaluation: Evaluation
    start: AtStep | PublishedModel | None = None
    """The checkpoint that `spec.start` reads; None for fresh parameters."""

    execution: Execution = field(default_factory=Execution)
    place: Placement = CANONICAL
    forecast: ForecastRecord | None = None
    """Frozen before the run: its checkpoints have it as an input, so the run cannot start without it."""

    proposed: ProposalRecord | None = None
    """The proposal that chose it, if it is a trial of a search."""

    scored_on: Corpus | None = None
    """Whose held-out text scores the run; None: its own corpus's. Runs on several corpora are compared by one text."""

    def __hash__(self) -> int:
        """Hash the name and the place. Nodes are cached by run, and a hash of all fields takes 40 us (a fifth of the graph)."""
        return hash((self.spec.name, self.place))

    def __post_init__(self) -> None:
        if (self.start is None) != (self.spec.start is None):
            raise ValueError(
                f"run {self.name}: start is {self._start_name()}, spec.start is {self.spec.start!r}; give both, or neither for "
                "fresh parameters"
            )
        self._check_preferences()
        if self.scored_on is not None and (difference := self.corpus.split_difference(self.scored_on)):
            raise ValueError(
                f"run {self.name}: it is scored on the held-out text of corpus {self.scored_on.name}, and its own corpus "
                f"{self.corpus.name} may train on that: {difference}; make them equal, so that both hold out the same documents"
            )
        before = self.start.run if isinstance(self.start, AtStep) else None
        if self.continues and (before is None or before.spec.seq_len != self.spec.seq_len):
            raise ValueError(
                f"run {self.name}: spec.start.data is 'continued', which continues the data order of a declared run with "
                f"seq_len {self.spec.seq_len}; start is {before and (before.name, before.spec.seq_len)}"
            )
        packing = self.data.packing
        if packing is not None and packing.seq_len != self.spec.seq_len:
            raise ValueError(
                f"run {self.name}: mix {self.data.name} is packed for seq_len {packing.seq_len}, spec.seq_len is "
                f"{self.spec.seq_len}; make them equal"
            )
        if self.spec.model.vocab_size < self.tokens.vocab_size:
            raise ValueError(
                f"run {self.name}: spec.model.vocab_size is {self.spec.model.vocab_size}, tokens {self.tokens.name} have "
                f"{self.tokens.vocab_size}; build the spec with tokens.vocab_size"
            )
        own = set(self.decontamination.suites)
        if strange := [suite.name for suite in self.evaluation.suites if suite not in own]:
            raise ValueError(
                f"run {self.name}: evaluation.suites has {', '.join(strange)}, of which corpus {self.corpus.name} is not "
                f"cleaned; add them to decontamination {self.decontamination.name} under another name"
            )

    def _check_preferences(self) -> None:
        prefers = isinstance(self.spec.objective, Dpo)
        for tokens in (self.tokens, self.evaluation.pairs):
            if tokens is None:
                continue
            sides = 2 * tokens.format.side_tokens if isinstance(tokens.format, Preferences) else None
            if sides != (self.spec.seq_len if prefers else None):
                raise ValueError(
                    f"run {self.name}: objective is {self.spec.objective.kind!r} with seq_len {self.spec.seq_len}, tokens "
                    f"{tokens.name} have the format {tokens.format.kind!r} with rows of {sides}; dpo reads the format "
                    "'preferences' with side_tokens of half seq_len, and no other objective does"
                )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def tokens(self) -> Tokens:
        return self.data.tokens

    @property
    def corpus(self) -> Corpus:
        return self.tokens.corpus

    @property
    def heldout_corpus(self) -> Corpus:
        """The corpus whose held-out text scores the run."""
        return self.scored_on or self.corpus

    @property
    def scope(self) -> Scope:
        return self.corpus.scope

    @property
    def decontamination(self) -> Decontamination:
        return self.corpus.decontamination

    @property
    def sources(self) -> tuple[str, ...]:
        return self.corpus.sources

    @property
    def continues(self) -> bool:
        """Whether the run continues its predecessor's data order."""
        return self.spec.start is not None and self.spec.start.data == "continued"

    @property
    def first_step(self) -> int:
        """Steps of the predecessors in the same data order."""
        return self.start.run.first_step + self.start.step if self.continues and isinstance(self.start, AtStep) else 0

    @property
    def batches(self) -> BatchSchedule:
        """Batch sizes of the data order from its first step, over all runs that share it."""
        if not self.continues or not isinstance(self.start, AtStep):
            return self.spec.batches
        return self.start.run.batches.followed_by(self.spec.batches, self.first_step)

    @property
    def history(self) -> "tuple[Run, ...]":
        """The predecessors of this run, the oldest first, and this run last."""
        return (*self.start.run.history, self) if isinstance(self.start, AtStep) else (self,)

    def with_data(self, data: Mix) -> "Run":
        """Return the run over other data."""
        return replace(self, data=data)

    def narrowed(self, by: Narrowing) -> "Run":
        """Return the run over the chosen sources, named `<name>_<suffix>`; a run that it starts from is narrowed too.

        A forecast is about the run over all sources, so the narrowed run has none.
        """
        start = self.start
        if isinstance(start, AtStep):
            start = AtStep(start.run.narrowed(by), start.step)
        spec = replace(self.spec, name=f"{self.name}_{by.suffix}")
        scored_on = None if self.scored_on is None else self.scored_on.narrowed(by)
        return replace(self, spec=spec, data=self.data.narrowed(by), start=start, forecast=None, scored_on=scored_on)

    def _start_name(self) -> str:
        if self.start is None:
            return "None"
        return f"step {self.start.step} of {self.start.run.name}" if isinstance(self.start, AtStep) else self.start.name
