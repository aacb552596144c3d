"""The verdict over branches from one checkpoint as an asset; `marin_assets/sweeps.py` makes the branches."""

from dataclasses import replace

import dagster as dg

from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate, single
from marin_assets.laws import SWEEPS
from recipes.annealings import Annealing, annealing_verdict
from recipes.sweeps import result


def verdict_template(of: Annealing) -> AssetTemplate:
    """Return the verdict. It reads the results of all branches."""
    node, (control, *others) = annealing_verdict(of), of.config.mixes
    described = f"Whether {', '.join(others)} are better than {control}, by pairs of branches from one checkpoint."
    template = single(node, lambda lab: node, SWEEPS, described, "json")
    every = {result(of.trials.trials[0]).key: dg.AllPartitionMapping()}
    return replace(template, mappings=every, invariants=(FILES,))
