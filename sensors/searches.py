"""Add the next round of each search and swarm when the table before it is there; request its proposal, trials and table.

The sensor reads the store alone, so a search that was killed goes on with what is missing. It is off until a person starts it
(`MARIN_AUTOMATION`), because rounds cost compute.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from jobs.automation import sensors_at_start
from lineage.build.nodes import Node, exists
from partitions.axes import rounds
from recipes.runs import mixture
from recipes.searches import Rounds, Search
from recipes.swarms import Swarm, every_run, fit, proposal, runs_table, second_proposal, snr
from recipes.sweeps import result, results, trial
from resources.lab import Lab

SEARCH_TAG, STEP_TAG = "marin/search", "marin/search_step"
MOST_TRIES = 3
"""Runs of one step of a round. After that a person decides."""


@dataclass(frozen=True)
class Step:
    """What a search or a swarm needs next."""

    of: str
    round: str
    what: str
    """`proposal`, `result` or `table`."""
    keys: tuple[tuple[str, ...], ...]
    """Assets to make."""
    trials: tuple[str, ...] = ()
    """Partitions of the trials; none: the assets have no trials."""
    added: dg.DynamicPartitionsDefinition | None = None
    """Where the round must be a partition; a swarm's rounds are none."""

    @property
    def tags(self) -> dict[str, str]:
        """By which the runs of this step are found."""
        return {SEARCH_TAG: self.of, STEP_TAG: f"{self.round}:{self.what}"}

    def request(self, number: int) -> dg.RunRequest:
        """A run of this step; trials run many to a run, and those that exist are reused."""
        keys = [dg.AssetKey(list(key)) for key in self.keys]
        run_key = f"{self.of}:{self.round}:{self.what}:{number}"
        if self.trials:
            ends = (self.trials[0], self.trials[-1])
            names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
            return dg.RunRequest(run_key, asset_selection=keys, tags=self.tags | dict(zip(names, ends, strict=True)))
        if self.added is None:
            return dg.RunRequest(run_key, asset_selection=keys, tags=self.tags)
        # Without the tag Dagster 1.13 looks for the new partition where it is not known yet, and raises.
        tags = self.tags | {"dagster/partition": self.round}
        return dg.RunRequest(run_key, asset_selection=keys, partition_key=self.round, tags=tags)


def next_step(of: Search | Swarm, lab: Lab) -> Step | str:
    """What a search or a swarm needs next, or why it needs nothing."""
    return _of_search(of, lab) if isinstance(of, Search) else _of_swarm(of, lab)


def _of_search(search: Search, lab: Lab) -> Step | str:
    of = Rounds(search, lab.store)
    if not exists(lab.store, of.table(0)):
        return f"{search.name} waits for sweeps/{search.first.name}/table"
    for number, name in enumerate(search.round_names, start=1):

        def step(what: str, *assets: str, trials: tuple[str, ...] = (), name: str = name) -> Step:
            keys = tuple(("sweeps", search.name, asset) for asset in assets)
            return Step(search.name, name, what, keys, trials, rounds(search.name))

        if not exists(lab.store, of.proposal(number)):
            return step("proposal", "proposal")
        if not all(exists(lab.store, result(run)) for run in of.trials(number)):
            return step("result", "trial", "result", trials=tuple(f"{name}|{slot}" for slot in search.slots))
        if not exists(lab.store, of.table(number)):
            return step("table", "table", *(("fit",) if search.first.law is not None else ()))
    return f"{search.name} has had its {search.rounds} rounds"


def _of_swarm(swarm: Swarm, lab: Lab) -> Step | str:
    def step(what: str, *nodes: Node, trials: tuple[str, ...] = ()) -> Step:
        return Step(f"swarms/{swarm.name}", "second", what, tuple(node.key for node in nodes), trials)

    if not exists(lab.store, runs_table(swarm)):
        return f"{swarm.name} waits for {runs_table(swarm).name}"
    if not exists(lab.store, second_proposal(swarm)):
        return step("proposal", snr(swarm), second_proposal(swarm))
    runs = swarm.second_trials.trials
    if not all(exists(lab.store, node) for node in results(swarm.second_trials)):
        made = (mixture(runs[0]), trial(runs[0]), result(runs[0]))
        return step("result", *made, trials=tuple(run.name for run in runs))
    if not exists(lab.store, every_run(swarm)):
        return step("table", every_run(swarm), fit(swarm), proposal(swarm))
    return f"{swarm.name} has had its second round"


def search_sensor(searches: Sequence[Search], swarms: Sequence[Swarm] = ()) -> dg.SensorDefinition:
    """Sensor of all declared searches, and of swarms with a second round. It has no cursor: what is there decides."""
    keys = [key for search in searches for key in _assets(search)] + [key for swarm in swarms for key in _swarm_assets(swarm)]

    @dg.sensor(
        name="searches",
        asset_selection=dg.AssetSelection.assets(*(dg.AssetKey(list(key)) for key in keys)),
        minimum_interval_seconds=30,
        default_status=sensors_at_start(),
        description="Adds the next round of each search and swarm when the table before it is there; requests its trials.",
    )
    def rounds_of_searches(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        requests, added, waiting = [], [], []
        for each in (*searches, *swarms):
            step = next_step(each, lab)
            if isinstance(step, str):
                waiting.append(step)
                continue
            if step.added is not None and not context.instance.has_dynamic_partition(str(step.added.name), step.round):
                added.append(step.added.build_add_request([step.round]))
            requests += _due(context.instance, step, waiting)
        if not requests and not added:
            return dg.SensorResult(skip_reason="; ".join(waiting))
        return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=added)

    return rounds_of_searches


def _assets(search: Search) -> list[tuple[str, ...]]:
    names = ("proposal", "trial", "result", "table", *(("fit",) if search.first.law is not None else ()))
    return [("sweeps", search.name, name) for name in names]


def _swarm_assets(swarm: Swarm) -> list[tuple[str, ...]]:
    run = swarm.second_trials.trials[0]
    of_round = (snr(swarm), second_proposal(swarm), mixture(run), trial(run), result(run))
    return [node.key for node in (*of_round, every_run(swarm), fit(swarm), proposal(swarm))]


def _due(instance: dg.DagsterInstance, step: Step, waiting: list[str]) -> Iterator[dg.RunRequest]:
    """Yield the request of a step that no run is making and that has not failed too often; else say why not."""
    runs = instance.get_runs(dg.RunsFilter(tags=step.tags))
    if any(not run.is_finished for run in runs):
        waiting.append(f"a run makes {step.what} of {step.of} {step.round}")
    elif len(runs) >= MOST_TRIES:
        waiting.append(f"{step.what} of {step.of} {step.round} was tried {len(runs)} times; look at its last run")
    else:
        yield step.request(len(runs))
