"""Shards that really fail: `poison` breaks chosen shards of any stage.

    with pytest.raises(IncompleteError):
        build(store, poisoned(node, {"parse-00001": "value"}))      # fails, quarantined by name
    store_waiver(store, node)
    artifact = build(store, poisoned(node, {"parse-00001": "value"})).artifact

What a stage records of itself (`rows_in`, drops) counts what it has read: rows of a shard that was left out are unknown, so
rows in = rows out + drops holds without them, and `manifest.omitted` says that there are more.
"""

import datetime
import functools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.waiver_stage import waive
from lineage.shards.run import ShardFunction
from lineage.trust.gate import utc_today
from lineage.trust.waivers import Waiver
from lineage.writing.writer import Writer


def poisoned(node: Node, shards: Mapping[str, str]) -> Node:
    """The same node, same identity, whose named shards fail by `value`, `connection`, `memory`, `hog`, `crowd` or `kill`."""
    run = node.stage.run
    assert run is not None

    @functools.wraps(run)
    def run_poisoned(out: Writer, config: object, **inputs: Artifact | tuple[Artifact, ...]) -> None:
        out.map_shards = functools.partial(_map_poisoned, out.map_shards, shards)  # an attribute shadows the method
        run(out, config, **inputs)

    return replace(node, stage=replace(node.stage, run=run_poisoned))


def waived_shards(store: Store, node: Node) -> Artifact:
    """A waiver that lets a node's artifact do without the shards on record, and others be made from it, until tomorrow."""
    tomorrow = (utc_today() + datetime.timedelta(days=1)).isoformat()
    return waive(store, Waiver("incomplete", node.name, "ada", "the file cannot be read", tomorrow))


def fail(folder: Path, how: str, function: ShardFunction, *arguments: object) -> Mapping[str, Any]:
    """Do as the shard does, then fail half-way."""
    function(folder, *arguments)
    match how:
        case "value":
            raise ValueError("the record cannot be read")
        case "connection":
            raise ConnectionResetError("the peer went away")
        case "memory":
            raise MemoryError
        case "hog" | "crowd":  # touches what it takes: 4 GiB in steps, until its own limit or that of its control group
            held = [np.ones(1 << 25, np.uint8) for _ in range(128)]
            return {"held": len(held)}
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(f"no shard fails by {how!r}")


def _map_poisoned(
    map_shards: Callable[..., dict[str, Mapping[str, Any]]],
    shards: Mapping[str, str],
    function: ShardFunction,
    tasks: Mapping[str, tuple[object, ...]],
    workers: int | None = None,
    *,
    omittable: bool = False,
    in_runs: bool = False,
    lazy: bool = False,
) -> dict[str, Mapping[str, Any]]:
    routed = {name: (shards.get(name, ""), function, *arguments) for name, arguments in tasks.items()}
    return map_shards(route, routed, workers, omittable=omittable, in_runs=in_runs, lazy=lazy)


def route(folder: Path, how: str, function: ShardFunction, *arguments: object) -> Mapping[str, Any]:
    """A shard of a poisoned stage: the real one, or one that fails."""
    return fail(folder, how, function, *arguments) if how else function(folder, *arguments)
