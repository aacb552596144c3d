"""Assets over a swarm: its runs as a table, signal to noise, surrogates, the proposal and its confirmation."""

from collections.abc import Iterator
from dataclasses import replace

import dagster as dg

from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate, single
from marin_assets.laws import SWEEPS
from recipes.swarms import Swarm, confirmation, every_run, fit, proposal, runs_table, second_proposal, snr
from recipes.sweeps import result


def swarm_templates(swarm: Swarm) -> Iterator[AssetTemplate]:
    """Yield what is made of the trials and of the confirmation's runs; `marin_assets/sweeps.py` makes those."""
    every = {result(part.trials[0]).key: dg.AllPartitionMapping() for part in swarm.parts}
    count, targets = len(swarm.trials.trials), ", ".join(swarm.targets)
    rows = (
        (runs_table(swarm), f"Shares of the sources, and losses on {targets}, of the {count} trials of `{swarm.name}`.",
         "parquet"),
        (snr(swarm), f"Spread of the designs of `{swarm.name}` against repeats at each anchor, by target.", "json"),
        (fit(swarm), f"How well surrogates predict trials of `{swarm.name}` that they did not see.", "json"),
        (proposal(swarm), f"The mixture that `{swarm.name}` proposes, with its predicted gain; frozen before any confirmation.",
         "json"),
        (confirmation(swarm), f"The proposal of `{swarm.name}` against its contenders, by fresh seeds: beats, ties or loses.",
         "json"),
    )  # fmt: skip
    second = swarm.second
    if second is not None:
        rows += (
            (second_proposal(swarm), f"The {second.count} mixtures of the second round of `{swarm.name}`.",
             "json"),
            (every_run(swarm), f"Shares and losses of the trials of both rounds of `{swarm.name}`.", "parquet"),
        )  # fmt: skip
    for node, description, kind in rows:
        template = single(node, lambda lab, node=node: node, SWEEPS, description, kind)
        yield replace(template, mappings=every, invariants=(FILES,))
