"""Dagster runs of a command: what is missing above an asset, inputs first, in as few runs as the assets allow."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

import dagster as dg

from evals.items.stage import TRIAL_RESULT
from lineage.build.nodes import Node, exists
from lineage.jobs.kept_process import KeptProcess
from lineage.memory import release_freed_memory
from marin_assets.cli.stage_lines import StageLines
from marin_assets.cli.upkeep import QUIET
from marin_assets.definitions import declared_defs
from partitions.axes import dynamic_parts
from resources.lab import PRIORITY_TAG, Lab
from trainer.spec.stage import TRIAL

log = logging.getLogger(__name__)
INTERACTIVE = "interactive"


def by_depth(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes sorted by the length of the longest chain of their inputs: all trials of a sweep, then all their results, so
    that one process can train them and another one score them. The nodes hold all their inputs, inputs first."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.name] = 1 + max((depth[parent.name] for parent in node.parents()), default=0)
    return sorted(nodes, key=lambda node: depth[node.name])


def make(
    lab: Lab,
    instance: dg.DagsterInstance,
    nodes: Sequence[Node],
    made_by: Mapping[tuple[str, ...], Sequence[str]],
    *,
    remade: Sequence[Node] = (),
    lines: StageLines | None = None,
) -> None:
    """Materialize the canonical nodes that are missing, one Dagster run each, which the UI shows; trials of a sweep share one.
    Inputs come before what is made of them.

    `made_by`: key of a node -> key of the asset that makes it, if they differ (a checkpoint and its training). `remade` nodes
    are materialized even if they exist. `lines` gets the events of the runs. Raises: errors of the engines.
    """
    definitions = declared_defs(dg.ResourceDefinition.hardcoded_resource(lab))
    for number, node in enumerate(nodes):
        if node not in remade and exists(lab.store, node):
            if lines is not None:
                lines.reused(node.name)
            continue
        if isinstance(lab.trials, KeptProcess) and node.stage.name not in (TRIAL.name, TRIAL_RESULT.name):
            lab.trials.end()  # another job may need the accelerator that it holds
        asset_key = dg.AssetKey(list(made_by.get(node.key, node.key)))
        asset = definitions.resolve_assets_def(asset_key)
        partition = node.partition if asset.partitions_def is not None else None
        if asset.partitions_def is not None and partition is not None:
            for name, part in dynamic_parts(asset.partitions_def, partition):
                instance.add_dynamic_partitions(name, [part])  # nothing changes if it is there
        shared = [] if node in remade else _of_one_run(lab, asset, nodes[number:])
        if len(shared) > 1:
            _run(instance, asset, asset_key, _range(asset, shared), lines=lines)
        else:
            _run(instance, asset, asset_key, {}, partition, lines)


def _of_one_run(lab: Lab, asset: dg.AssetsDefinition, nodes: Sequence[Node]) -> list[str]:
    """Return the partitions that one Dagster run of the asset makes: those that are missing of the first nodes, of one key."""
    policy = asset.backfill_policy
    if policy is None or not isinstance(asset.partitions_def, dg.StaticPartitionsDefinition):
        return []
    first = takewhile(lambda node: node.key == nodes[0].key, nodes)  # inputs of later ones may not be there yet
    missing = (node for node in first if not exists(lab.store, node))
    return [str(node.partition) for node in islice(missing, policy.max_partitions_per_run)]


def _run(
    instance: dg.DagsterInstance,
    asset: dg.AssetsDefinition,
    key: dg.AssetKey,
    tags: Mapping[str, str],
    partition: str | None = None,
    lines: StageLines | None = None,
) -> None:
    """Materialize an asset in a Dagster run. Raises: errors of the engines."""
    run_id = str(uuid.uuid4())
    if lines is not None:
        instance.add_event_listener(run_id, lines)
    result = (
        dg.Definitions(assets=[asset])
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            run_id=run_id,
            partition_key=partition,
            instance=instance,
            raise_on_error=True,
            asset_selection=[key],
            tags={PRIORITY_TAG: INTERACTIVE, **tags},
            run_config=QUIET,
        )
    )
    release_freed_memory()
    log.info("%s: %s", key.to_user_string(), "materialized" if result.success else "failed")


def _range(asset: dg.AssetsDefinition, partitions: Sequence[str]) -> dict[str, str]:
    """Dagster's tags of a run over the range that holds some partitions. What exists in it is reused."""
    assert asset.partitions_def is not None
    order = asset.partitions_def.get_partition_keys()
    first, last = min(partitions, key=order.index), max(partitions, key=order.index)
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
