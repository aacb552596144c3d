"""Assets of a search: proposals by round, trials and results by round and place, tables and laws by round.

Rounds are dynamic partitions: `sensors/searches.py` adds one when the table before it is there, and a person may add one in
the UI. What a round's trials are is read from its proposal in the store.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from lineage.build.nodes import Node
from marin_assets.data import mix_assets
from marin_assets.data_stages import FILES, ROWS
from marin_assets.factory import AssetTemplate, Invariant
from marin_assets.laws import CONVERGED, SWEEPS
from marin_assets.sweeps import trials_asset
from partitions.axes import rounds, trials_of_rounds
from recipes.searches import Rounds, Search
from recipes.sweeps import result, trial
from resources.lab import Lab


def search_data(search: Search) -> Iterator[AssetTemplate]:
    """Yield the data that the trials read, which all share."""
    yield from mix_assets(search.example)


def trial_templates(search: Search) -> tuple[AssetTemplate, ...]:
    """Return trials and results; `search_asset` makes them."""
    proposal = search.example.proposed
    assert proposal is not None  # a search places its trials
    by_round = {proposal.node().key: _round_of_both()}
    rows = (
        (trial, "One trained model for each proposed trial, or the record of its divergence.", {"jax", "safetensors"}),
        (result, "Held-out bits per byte of each proposed trial by domain, or that it diverged.", {"json"}),
    )
    return tuple(
        AssetTemplate(
            example=make(search.example),
            node_at=lambda lab, partition, make=make: make(Rounds(search, lab.store).trial(str(partition))),
            store_of=lambda lab: lab.store,
            group=SWEEPS,
            description=description,
            kinds=frozenset(kinds),
            partitions_def=trials_of_rounds(search.name, search.slots),
            mappings=by_round,
            invariants=(FILES,),
        )
        for make, description, kinds in rows
    )


def search_templates(search: Search) -> Iterator[AssetTemplate]:
    """Yield proposals, tables, and laws if the first sweep declares one."""
    example = search.example
    assert example.proposed is not None
    proposal, first = example.proposed.node(), search.first.name
    yield _by_round(
        search, proposal, Rounds.proposal,
        f"The trials of each round of `{search.name}`, chosen from the table before it; the first from that of `{first}`.",
        "json", FILES,
    )  # fmt: skip
    table = search.table(1, {1: (example,)})
    yield _by_round(
        search, table, Rounds.table, f"One row for each trial of `{first}` and of all rounds up to this one.", "parquet",
        FILES, ROWS,
    )  # fmt: skip
    if search.first.law is not None:
        described = f"The law of `{first}` with the trials of all rounds up to this one."
        yield _by_round(search, search.fit(1, table), Rounds.fit, described, "json", FILES, CONVERGED)


def add_first_rounds(instance: dg.DagsterInstance, searches: Sequence[Search]) -> None:
    """Make the first round of each search a partition, which can be made. Dagster's UI draws 0 of 0 partitions as made."""
    for search in searches:
        name = str(rounds(search.name).name)
        if not instance.get_dynamic_partitions(name):
            instance.add_dynamic_partitions(name, [search.round_names[0]])


def search_asset(search: Search) -> dg.AssetsDefinition:
    """Return the operation that trains and scores the requested trials of a search."""
    return trials_asset(f"search {search.name}", trial_templates(search))


def _by_round(
    search: Search, example: Node, node: Callable[[Rounds, int], Node], description: str, kind: str, *invariants: Invariant
) -> AssetTemplate:
    def at(lab: Lab, partition: str | None) -> Node:
        of = Rounds(search, lab.store)
        return node(of, of.number(str(partition)))

    return AssetTemplate(
        example=example,
        node_at=at,
        store_of=lambda lab: lab.store,
        group=SWEEPS,
        description=description,
        kinds=frozenset({kind}),
        partitions_def=rounds(search.name),
        mappings={
            result(search.first.trials[0]).key: dg.AllPartitionMapping(),
            result(search.example).key: _round_of_both(),
            (*example.key[:-1], "table"): dg.IdentityPartitionMapping(),
        },
        invariants=invariants,
    )


def _round_of_both() -> dg.PartitionMapping:
    """Map a trial to its round. Dagster warns that the mapping is beta, for every search in every process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in beta")
        return dg.MultiToSingleDimensionPartitionMapping("round")
