"""What `marin materialize` does for an asset that is no artifact: a report, a scout, a probe, the verdict on a canary."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from rich.console import Console

from marin_assets.definitions import declared_defs
from resources.dagster_private import keep_engines
from resources.lab import lab_from_environment

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Dagster's events go to the instance, where the UI shows them. The terminal shows progress, results and the cause of a
failure.
"""


@dataclass(frozen=True)
class Materialized:
    """What a materialization reported: its metadata, and check -> why of each check that did not pass."""

    key: str
    metadata: Mapping[str, Any]
    failed_checks: Mapping[str, str]


def materialize_upkeep(key: str, partition: str | None) -> Materialized | None:
    """Materialize an asset that is no artifact, in one Dagster run; None if the graph has no such asset.

    Raises: ValueError for a partition that is missing or that the asset does not have; errors of the asset.
    """
    with dg.DagsterInstance.get() as instance:
        keep_engines(instance)
        definitions = declared_defs(lab_from_environment())
        asset_key, graph = dg.AssetKey(key.split("/")), definitions.resolve_asset_graph()
        if not graph.has(asset_key) or not graph.get(asset_key).is_executable:
            return None
        asset = definitions.resolve_assets_def(asset_key)
        if (asset.partitions_def is None) != (partition is None):
            if asset.partitions_def is None:
                raise ValueError(f"{key} has no partitions; leave --partition out")
            last = asset.partitions_def.get_partition_keys(dynamic_partitions_store=instance)[-1:]
            raise ValueError(f"{key} has partitions; give one with --partition, such as {', '.join(last)}")
        job = definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            run_id=str(uuid.uuid4()),
            partition_key=partition,
            instance=instance,
            raise_on_error=True,
            asset_selection=[asset_key],
            run_config=QUIET,
        )
    [event] = result.get_asset_materialization_events()
    metadata = {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}
    failed = {check.check_name: check.description or "" for check in result.get_asset_check_evaluations() if not check.passed}
    return Materialized(key, metadata, failed)


def print_materialized(materialized: Materialized, console: Console) -> None:
    """Print the metadata that fits a line, and the checks that did not pass; the UI shows tables and pictures."""
    console.print(f"{materialized.key} was materialized; the UI shows all of it", soft_wrap=True, markup=False)
    for name, value in materialized.metadata.items():
        if isinstance(value, int | float) or (isinstance(value, str) and "\n" not in value and len(value) < 200):
            console.print(f"  {name}: {value}", soft_wrap=True, markup=False)
    for name, why in materialized.failed_checks.items():
        console.print(f"  check {name} did not pass: {why}", soft_wrap=True, markup=False)
