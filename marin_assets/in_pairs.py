"""Verdicts over trials that are compared in pairs: annealings and proxies."""

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from lineage.build.nodes import Node
from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate, single
from marin_assets.laws import SWEEPS
from recipes.annealings import Annealing, annealing_verdict
from recipes.proxies import Proxy, proxy_verdict
from recipes.records.sweep import Sweep
from recipes.sweeps import result


def annealing_template(of: Annealing) -> AssetTemplate:
    """Return the verdict. It reads the results of all branches."""
    control, *others = of.config.mixes
    described = f"Whether {', '.join(others)} are better than {control}, by pairs of branches from one checkpoint."
    return _verdict(annealing_verdict(of), [of.trials], described)


def proxy_template(of: Proxy) -> AssetTemplate:
    """Return the verdict. It reads the results of all runs."""
    control, *others = of.config.corpora
    described = f"Whether {', '.join(others)} is better text than {control}, by pairs of small models."
    return _verdict(proxy_verdict(of), of.arms, described)


def _verdict(node: Node, sweeps: Sequence[Sweep], described: str) -> AssetTemplate:
    template = single(node, lambda lab: node, SWEEPS, described, "json")
    every = {result(sweep.trials[0]).key: dg.AllPartitionMapping() for sweep in sweeps}
    return replace(template, mappings=every, invariants=(FILES,))
