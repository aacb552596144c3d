"""Searches: sweeps that add rounds. The record, and the nodes of its rounds over a store.

The trials of a round follow from an artifact, `sweeps/<search>/proposal`, so their nodes exist only where a store has it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lineage.artifact.store import Store
from lineage.build.nodes import MissingArtifactError, Node, resolve
from recipes.records.placement import RoundTrialOf
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.sweeps import result, results
from recipes.sweeps import table as table_of_sweep
from science.forecasts.fit_stage import FIT
from science.forecasts.table import TABLE, Expected, TableConfig
from science.search.proposers import Proposed, Proposer, slots
from science.search.round_stage import ROUND_PROPOSAL, RoundConfig, proposed_in
from trainer.spec.target import size_of


@dataclass(frozen=True)
class ProposedBy:
    """The artifact that chose a trial; the trial has it as an input."""

    proposal: Node
    budget: float | None = None
    """Training FLOPs that the proposal asks for; None: it asks for none."""

    def node(self) -> Node:
        return self.proposal


@dataclass(frozen=True)
class Search:
    """Rounds of trials after a declared sweep: the table of all trials so far chooses the trials of the next round.

    Its assets are `sweeps/<name>/proposal`, `/trial`, `/result`, `/table`, and `/fit` if the first sweep declares a law.
    """

    name: str
    first: Sweep
    """Round 0: trials that are declared."""

    proposer: Proposer
    run_at: Callable[[str, Mapping[str, float]], Run]
    """Name and settings of a trial -> its run. It must set what the settings say, and keep only the last checkpoint."""

    rounds: int = 3
    """Most rounds that are proposed."""

    def __post_init__(self) -> None:
        if self.name == self.first.name:
            raise ValueError(f"search {self.name}: its first sweep has the same name; rename one")
        if self.first.max_missing:
            raise ValueError(
                f"search {self.name}: sweep {self.first.name} may lack {self.first.max_missing} trials, so its table could "
                "change; set max_missing to 0"
            )
        if self.rounds < 1:
            raise ValueError(f"search {self.name}: rounds is {self.rounds}; it must be at least 1")
        kept = self.example.spec.saved_steps()
        if len(kept) > 1:
            raise ValueError(f"search {self.name}: a trial keeps steps {kept}; it keeps its last: set save_every_steps to None")

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the trials of every round."""
        return slots(self.proposer)

    @property
    def round_names(self) -> tuple[str, ...]:
        """Names of the rounds that may be proposed."""
        return tuple(f"r{number}" for number in range(1, self.rounds + 1))

    @cached_property
    def example(self) -> Run:
        """The first trial of the first round, with settings as an example."""
        return self.placed(Proposed("r1-t0", self.proposer.example), 1, self.proposal(1, table_of_sweep(self.first)))

    def proposal(self, number: int, before: Node) -> Node:
        """The proposal of a round, from the table of all trials before it."""
        config = RoundConfig(number, self.proposer)
        return Node(("sweeps", self.name, "proposal"), f"r{number}", ROUND_PROPOSAL, config, {"table": before})

    def placed(self, trial: Proposed, number: int, proposal: Node) -> Run:
        """The run of a proposed trial."""
        by = ProposedBy(proposal, trial.values.get("budget"))
        return replace(self.run_at(trial.name, trial.values), place=RoundTrialOf(self.name, f"r{number}"), proposed=by)

    def table(self, number: int, trials: Mapping[int, tuple[Run, ...]]) -> Node:
        """One row for each trial of the first sweep and of the rounds up to a number."""
        every = [run for earlier in range(1, number + 1) for run in trials[earlier]]
        rows = [*zip(self.first.trials, self.first.declared_budgets, strict=True), *((run, budget_of(run)) for run in every)]
        expected = tuple(Expected(run.name, budget) for run, budget in rows)
        config = TableConfig(expected, self.first.loss.task, self.first.loss.metric)
        inputs = {"results": (*results(self.first), *(result(run) for run in every))}
        return Node(("sweeps", self.name, "table"), f"r{number}", TABLE, config, inputs)

    def fit(self, number: int, table: Node) -> Node:
        """The law after a round. Raises: ValueError if the first sweep declares none."""
        if self.first.law is None:
            raise ValueError(f"search {self.name}: sweep {self.first.name} declares no law; give it a FitConfig")
        return Node(("sweeps", self.name, "fit"), f"r{number}", FIT, self.first.law, {"table": table})


def budget_of(run: Run) -> float:
    """Training FLOPs of a trial, as proposed or as counted from its spec."""
    requested = run.proposed.budget if isinstance(run.proposed, ProposedBy) else None
    return requested or size_of(run.spec).flops


class NotProposedError(MissingArtifactError):
    """A round of a search has no trials yet, because its proposal was not made; `node` is that proposal."""


class Rounds:
    """The nodes of a search's rounds, as far as a store holds their proposals."""

    def __init__(self, search: Search, store: Store) -> None:
        self.search, self.store = search, store
        self._trials: dict[int, tuple[Run, ...]] = {}

    def table(self, number: int) -> Node:
        """The table after a round; 0: that of the first sweep."""
        if number == 0:
            return table_of_sweep(self.search.first)
        return self.search.table(number, {earlier: self.trials(earlier) for earlier in range(1, number + 1)})

    def proposal(self, number: int) -> Node:
        """The proposal of a round. Raises: NotProposedError if an earlier round was not proposed yet."""
        return self.search.proposal(number, self.table(number - 1))

    def trials(self, number: int) -> tuple[Run, ...]:
        """The trials of a round. Raises: NotProposedError if it was not proposed yet."""
        if number not in self._trials:
            proposal = self.proposal(number)
            try:
                proposed = proposed_in(resolve(self.store, proposal))
            except MissingArtifactError as error:
                raise NotProposedError(proposal, self.store) from error
            self._trials[number] = tuple(self.search.placed(each, number, proposal) for each in proposed)
        return self._trials[number]

    def trial(self, partition: str) -> Run:
        """The trial of a partition, `r1|t0`. Raises: ValueError for another name; NotProposedError."""
        name, _, slot = partition.partition("|")
        number = self.number(name)
        if slot not in self.search.slots:
            known = ", ".join(f"{name}|{each}" for each in self.search.slots)
            raise ValueError(f"search {self.search.name} has no trial {partition!r}; its round {name} has {known}")
        return self.trials(number)[self.search.slots.index(slot)]

    def number(self, name: str) -> int:
        """The number of a round. Raises: ValueError for another name, with those that there are."""
        if name not in self.search.round_names:
            known = ", ".join(self.search.round_names)
            raise ValueError(f"search {self.search.name} has no round {name!r}; it has {known}: raise `rounds` for more")
        return 1 + self.search.round_names.index(name)

    def fit(self, number: int) -> Node:
        """The law after a round."""
        return self.search.fit(number, self.table(number))
