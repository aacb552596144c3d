"""The same node with the shards of its stage in another order: for the benchmark and the test that order changes no byte.

Users have no such knob; the stage's own code and the real store run, and only the order in which shards are asked for differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lineage.build.nodes import Node, NodeInput
from lineage.shards.run import ShardFunction
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass
class ShuffledWriter(Writer):
    """A writer that runs shards one by one, in an order drawn by a seed."""

    seed: int = 0

    def map_shards(
        self,
        function: ShardFunction,
        tasks: Mapping[str, tuple[object, ...]],
        workers: int | None = None,
        *,
        omittable: bool = False,
        in_runs: bool = False,
        lazy: bool = False,
    ) -> dict[str, Mapping[str, Any]]:
        """As `Writer.map_shards`, a shard at a time: runs of them are not kept together."""
        done: dict[str, Mapping[str, Any]] = {}
        for index in np.random.default_rng(self.seed).permutation(len(tasks)):
            name = sorted(tasks)[index]
            done |= super().map_shards(function, {name: tasks[name]}, workers=1, omittable=omittable, lazy=lazy)
        return {name: done[name] for name in sorted(done)}


def shuffled(node: Node, seed: int, *, ancestors: bool = True) -> Node:
    """The node with its stage's shards in another order, and those of all that it is made of."""

    def run(out: Writer, config: object, **inputs: object) -> None:
        assert node.stage.run is not None  # stages of the data engine are functions
        node.stage.run(ShuffledWriter(**vars(out), seed=seed), config, **inputs)

    def parents(value: NodeInput) -> NodeInput:
        return tuple(shuffled(v, seed) for v in value) if isinstance(value, tuple) else shuffled(value, seed)

    inputs = {name: parents(value) for name, value in node.inputs.items()} if ancestors else node.inputs
    return replace(node, stage=Stage(node.stage.name, node.stage.version, run), inputs=inputs)
