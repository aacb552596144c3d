"""Add the next round of each search when the table before it is there, and request its proposal, trials and table.

The sensor reads the store alone, so a search that was killed goes on with what is missing. It is off until a person starts it
(`MARIN_AUTOMATION`), because rounds cost compute.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from jobs.automation import sensors_at_start
from lineage.build.plan import exists
from partitions.axes import rounds
from recipes.searches import Rounds, Search
from recipes.sweeps import result
from resources.lab import Lab

SEARCH_TAG, STEP_TAG = "marin/search", "marin/search_step"
MOST_TRIES = 3
"""Runs of one step of a round. After that a person decides."""


@dataclass(frozen=True)
class Step:
    """What a search needs next."""

    search: Search
    number: int
    what: str
    """`proposal`, `result` or `table`."""

    @property
    def round(self) -> str:
        return f"r{self.number}"

    @property
    def tags(self) -> dict[str, str]:
        """By which the runs of this step are found."""
        return {SEARCH_TAG: self.search.name, STEP_TAG: f"{self.round}:{self.what}"}

    def request(self, number: int) -> dg.RunRequest:
        """A run of this step; trials run many to a run, and those that exist are reused."""
        names = ("trial", "result") if self.what == "result" else ("table", "fit") if self._fits else (self.what,)
        keys = [dg.AssetKey(["sweeps", self.search.name, name]) for name in names]
        run_key = f"{self.search.name}:{self.round}:{self.what}:{number}"
        if self.what != "result":
            # Without the tag Dagster 1.13 looks for the new partition where it is not known yet, and raises.
            tags = self.tags | {"dagster/partition": self.round}
            return dg.RunRequest(run_key, asset_selection=keys, partition_key=self.round, tags=tags)
        ends = (f"{self.round}|{self.search.slots[0]}", f"{self.round}|{self.search.slots[-1]}")
        ranged = dict(zip(("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"), ends, strict=True))
        return dg.RunRequest(run_key, asset_selection=keys, tags=self.tags | ranged)

    @property
    def _fits(self) -> bool:
        return self.what == "table" and self.search.first.law is not None


def next_step(search: Search, lab: Lab) -> Step | str:
    """What a search needs next, or why it needs nothing."""
    of = Rounds(search, lab.store)
    if not exists(lab.store, of.table(0)):
        return f"{search.name} waits for sweeps/{search.first.name}/table"
    for number in range(1, search.rounds + 1):
        if not exists(lab.store, of.proposal(number)):
            return Step(search, number, "proposal")
        if not all(exists(lab.store, result(run)) for run in of.trials(number)):
            return Step(search, number, "result")
        if not exists(lab.store, of.table(number)):
            return Step(search, number, "table")
    return f"{search.name} has had its {search.rounds} rounds"


def search_sensor(searches: Sequence[Search]) -> dg.SensorDefinition:
    """Sensor of all declared searches. It has no cursor: what is there decides."""
    keys = [dg.AssetKey(["sweeps", search.name, name]) for search in searches for name in _assets(search)]

    @dg.sensor(
        name="searches",
        asset_selection=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=30,
        default_status=sensors_at_start(),
        description="Adds the next round of each search when the table before it is there; requests its trials and table.",
    )
    def rounds_of_searches(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        requests, added, waiting = [], [], []
        for search in searches:
            step = next_step(search, lab)
            if isinstance(step, str):
                waiting.append(step)
                continue
            definition = rounds(search.name)
            if not context.instance.has_dynamic_partition(str(definition.name), step.round):
                added.append(definition.build_add_request([step.round]))
            requests += _due(context.instance, step, waiting)
        if not requests and not added:
            return dg.SensorResult(skip_reason="; ".join(waiting))
        return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=added)

    return rounds_of_searches


def _assets(search: Search) -> tuple[str, ...]:
    return ("proposal", "trial", "result", "table", *(("fit",) if search.first.law is not None else ()))


def _due(instance: dg.DagsterInstance, step: Step, waiting: list[str]) -> Iterator[dg.RunRequest]:
    """Yield the request of a step that no run is making and that has not failed too often; else say why not."""
    runs = instance.get_runs(dg.RunsFilter(tags=step.tags))
    if any(not run.is_finished for run in runs):
        waiting.append(f"a run makes {step.what} of {step.search.name} {step.round}")
    elif len(runs) >= MOST_TRIES:
        waiting.append(f"{step.what} of {step.search.name} {step.round} was tried {len(runs)} times; look at its last run")
    else:
        yield step.request(len(runs))
