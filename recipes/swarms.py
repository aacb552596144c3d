"""A swarm: runs over many mixtures, a frozen proposal, and its confirmation by fresh seeds; the record and its nodes.

A second round adds trials whose mixtures an artifact chooses from the table of the first. Their nodes are known before, because
a mixture takes its weights from that artifact by the name of the trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lineage.build.nodes import Node
from lineage.order.mixture import StepPhase
from lineage.stage import Stage
from recipes.records.placement import SwarmTrialOf
from recipes.records.run import HELDOUT_TASK, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix
from recipes.sweeps import results
from science.mixtures.confirmation_stage import SWARM_CONFIRMATION, ConfirmationConfig, Fresh
from science.mixtures.earlier import EARLIER, Split
from science.mixtures.evidence import LEAST_PAIRS
from science.mixtures.fit_stage import SWARM_FIT, SwarmFitConfig
from science.mixtures.next_round import NextMixtures
from science.mixtures.next_round_stage import SWARM_NEXT_ROUND, NextRoundConfig, trial_names
from science.mixtures.proposal_stage import HAND_PICKED, PROPORTIONAL, PROPOSAL, SWARM_PROPOSAL, UNIFORM, SwarmProposalConfig
from science.mixtures.runs import SWARM_RUNS, Designed, SwarmRunsConfig
from science.mixtures.snr_stage import SWARM_SNR, SnrConfig
from trainer.spec.config import RunSpec

ANCHORS = (PROPORTIONAL, UNIFORM)
FIRST_REPEAT = 500
"""Seed of the first repeat; designs have the seeds from 0."""


@dataclass(frozen=True)
class Chosen:
    """The weights of a choice of a swarm's proposal: `Mix("mine", tokens, chosen=Chosen(swarm))`."""

    swarm: "Swarm"
    name: str = PROPOSAL

    def node(self) -> Node:
        return proposal(self.swarm)


@dataclass(frozen=True)
class ChosenNext:
    """The weights of a trial of a swarm's second round."""

    swarm: "Swarm"
    name: str

    def node(self) -> Node:
        return second_proposal(self.swarm)


@dataclass(frozen=True)
class Earlier:
    """A swarm whose runs count too, and which of its sources were split since."""

    swarm: "Swarm"
    splits: tuple[Split, ...]


@dataclass(frozen=True)
class Swarm:
    """Runs that differ in the weights of their sources, and what is made of them, below `swarms/<name>`."""

    name: str
    base: Run
    """What every trial is but for its mixture and its seed; its tokens have the sources."""

    designs: tuple[tuple[float, ...], ...]
    """Weights of the sources, a row a trial. They are numbers and no function, so another scipy changes no identity."""

    targets: tuple[str, ...]
    """Tags of held-out text whose loss the mixture should lower, such as `prose/sotu`."""

    search: SwarmProposalConfig
    """Sources with their tokens, caps, contenders."""

    repeats: int = 3
    """Runs at each anchor, which are the proportional and the uniform mixture."""

    fresh_seeds: tuple[int, ...] = (901, 902, 903, 904, 905, 906)
    """Seeds of the confirmation."""

    fit: SwarmFitConfig = field(default_factory=SwarmFitConfig)
    metric: str = "bits_per_byte"
    second: NextMixtures | None = None
    """A second round, which the runs of the first choose; None: the proposal is made from one round."""

    earlier: Earlier | None = None
    """A swarm over the same data before a source was split; its runs are rows of this swarm's table."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        sources = tuple(name for name, _ in self.search.sources)
        if strange := sorted(set(sources) - set(self.base.tokens.sources)):
            raise ValueError(
                f"swarm {self.name}: {', '.join(strange)} is no source of tokens {self.base.tokens.name}; they are "
                f"{', '.join(self.base.tokens.sources)}"
            )
        if any(len(row) != len(sources) for row in self.designs) or len(self.designs) < len(sources) + 2:
            raise ValueError(
                f"swarm {self.name}: {len(self.designs)} designs for {len(sources)} sources; give at least {len(sources) + 2}, "
                "each with a weight for every source"
            )
        if self.earlier is not None and _trained(self.earlier.swarm.base) != _trained(self.base):
            raise ValueError(
                f"swarm {self.name}: runs of {self.earlier.swarm.name} differ in more than their mixture; train as it did, or "
                "leave it out"
            )
        used = {run.spec.seed for part in self.rounds for run in part.trials}
        if len(set(self.fresh_seeds)) < LEAST_PAIRS or set(self.fresh_seeds) & used:
            raise ValueError(
                f"swarm {self.name}: fresh_seeds are {self.fresh_seeds}; give at least {LEAST_PAIRS} that no trial has"
            )

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.search.sources)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Targets as the results of trials name them."""
        return tuple(f"{HELDOUT_TASK}/{target}" for target in self.targets)

    @cached_property
    def trials(self) -> Sweep:
        """Designs, then repeats at the anchors."""
        anchors = self.search.contenders()
        runs = [self._run(f"d{number:03d}", weights, number) for number, weights in enumerate(self.designs)]
        for place, anchor in enumerate(ANCHORS):
            first = FIRST_REPEAT + place * self.repeats
            shares = tuple(round(float(share), 6) for share in anchors[anchor])
            runs += [self._run(f"{anchor}-s{first + n}", shares, first + n) for n in range(self.repeats)]
        return Sweep(self.name, tuple(runs), place=SwarmTrialOf(self.name))

    @property
    def next_mixtures(self) -> NextMixtures:
        """What is asked of the second round. Raises: ValueError for a swarm of one round."""
        if self.second is None:
            raise ValueError(f"swarm {self.name} has one round; set `second` to NextMixtures(count) for another")
        return self.second

    @cached_property
    def second_trials(self) -> Sweep:
        """Trials of the second round; their mixtures take their weights from what the first round chose.

        Raises: ValueError for a swarm of one round.
        """
        first = 1 + max(run.spec.seed for run in self.trials.trials)
        runs = [self._chosen(ChosenNext(self, name), name, first + n) for n, name in enumerate(trial_names(self.next_mixtures))]
        return Sweep(f"{self.name}-second", tuple(runs), place=SwarmTrialOf(self.name, ("second",)))

    @property
    def rounds(self) -> tuple[Sweep, ...]:
        """The trials that the proposal is made from."""
        return (self.trials,) if self.second is None else (self.trials, self.second_trials)

    @property
    def parts(self) -> tuple[Sweep, ...]:
        """All that the swarm trains: the rounds, then the confirmation."""
        return (*self.rounds, self.confirmation)

    @cached_property
    def confirmation(self) -> Sweep:
        """The proposal and its contenders with fresh seeds; their mixtures take their weights from the proposal."""
        choices = (PROPOSAL, PROPORTIONAL, UNIFORM, *((HAND_PICKED,) if self.search.hand_picked else ()))
        runs = []
        for choice in choices:
            for seed in self.fresh_seeds:
                runs.append(self._chosen(Chosen(self, choice), f"{choice}-s{seed}", seed))
        return Sweep(f"{self.name}-confirmation", tuple(runs), place=SwarmTrialOf(self.name, ("fresh",)))

    def _run(self, name: str, weights: tuple[float, ...], seed: int) -> Run:
        phase = StepPhase(0, tuple(zip(self.sources, weights, strict=True)))
        mix = Mix(name, self.base.tokens, (phase,), self.base.data.block_size, order_seed=seed)
        return self._named(name, mix, seed)

    def _chosen(self, chosen: Chosen | ChosenNext, name: str, seed: int) -> Run:
        mix = Mix(name, self.base.tokens, block_size=self.base.data.block_size, chosen=chosen, order_seed=seed)
        return self._named(name, mix, seed)

    def _named(self, name: str, mix: Mix, seed: int) -> Run:
        return replace(self.base, spec=replace(self.base.spec, name=name, seed=seed), data=mix)


def runs_table(swarm: Swarm) -> Node:
    """Shares and losses of every trial of the first round."""
    return _table(swarm, (swarm.trials,), "table")


def every_run(swarm: Swarm) -> Node:
    """Shares and losses of every trial of all rounds."""
    return runs_table(swarm) if swarm.second is None else _table(swarm, swarm.rounds, "second", "table")


def _table(swarm: Swarm, rounds: tuple[Sweep, ...], *name: str) -> Node:
    trials = [run for part in rounds for run in part.trials]
    repeated = {run.name for run in swarm.trials.trials[len(swarm.designs) :]}
    designed = tuple(
        Designed(run.name, run.spec.seed, run.name.rsplit("-s", 1)[0] if run.name in repeated else "") for run in trials
    )
    config = SwarmRunsConfig(designed, swarm.search.sources, swarm.tasks, swarm.metric)
    inputs: dict[str, Node | tuple[Node, ...]] = {"results": tuple(result for part in rounds for result in results(part))}
    if swarm.earlier is not None:
        config = replace(config, splits=swarm.earlier.splits)
        inputs[EARLIER] = every_run(swarm.earlier.swarm)
    return _node(swarm, name, SWARM_RUNS, config, inputs)


def _trained(run: Run) -> RunSpec:
    return replace(run.spec, name="", seed=0)


def snr(swarm: Swarm) -> Node:
    """Signal to noise of every target over the first round: mixtures of the second are chosen, so their spread says nothing."""
    return _node(swarm, ("snr",), SWARM_SNR, SnrConfig(), {"table": runs_table(swarm)})


def fit(swarm: Swarm) -> Node:
    """The error of every surrogate."""
    return _node(swarm, ("fit",), SWARM_FIT, swarm.fit, {"table": every_run(swarm)})


def second_proposal(swarm: Swarm) -> Node:
    """The mixtures of the second round. Raises: ValueError for a swarm of one round."""
    config = NextRoundConfig(swarm.next_mixtures, swarm.search)
    return _node(swarm, ("second", "proposal"), SWARM_NEXT_ROUND, config, {"table": runs_table(swarm), "snr": snr(swarm)})


def proposal(swarm: Swarm) -> Node:
    """The weights that the swarm proposes, frozen."""
    return _node(swarm, ("proposal",), SWARM_PROPOSAL, swarm.search, {"table": every_run(swarm), "snr": snr(swarm)})


def confirmation(swarm: Swarm) -> Node:
    """The proposal against its contenders."""
    fresh = tuple(Fresh(run.name, run.name.rsplit("-s", 1)[0], run.spec.seed) for run in swarm.confirmation.trials)
    inputs = {"proposal": proposal(swarm), "results": results(swarm.confirmation)}
    return _node(swarm, ("confirmation",), SWARM_CONFIRMATION, ConfirmationConfig(fresh, swarm.metric), inputs)


def _node(
    swarm: Swarm, name: tuple[str, ...], stage: Stage, config: object, inputs: Mapping[str, Node | tuple[Node, ...]]
) -> Node:
    return Node(("swarms", swarm.name, *name), None, stage, config, inputs)
