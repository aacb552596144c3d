"""Canary for the private Dagster names that `resources/dagster_private.py` wraps."""

from pathlib import Path

import dagster as dg
import pytest

from lineage.graph.consistency import combined_version
from resources.dagster_private import (
    UNFOLDED_PARTITIONS,
    UnresolvedAssetJobDefinition,
    keep_engines,
    parent_partitions,
    provenance_of,
)


def test_define_asset_job_still_returns_the_wrapped_type() -> None:
    assert isinstance(dg.define_asset_job("job"), UnresolvedAssetJobDefinition), "look at resources/dagster_private.py"


def test_events_stored_with_kept_engines_are_read_by_an_instance_without(tmp_path: Path) -> None:
    @dg.asset(check_specs=[dg.AssetCheckSpec("fine", asset="made")])
    def made() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"rows": 3}, check_results=[dg.AssetCheckResult(check_name="fine", passed=True)])

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert keep_engines(instance), "the SQLite event log is another class now: look at resources/dagster_private.py"
        results = [dg.materialize([made], instance=instance) for _ in range(2)]
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for result in results:
            stored = [log.dagster_event_type for log in instance.all_logs(result.run_id) if log.dagster_event_type is not None]
            ran = [kind for kind in stored if not kind.value.endswith("_PLANNED")]
            assert ran == [event.event_type for event in result.all_events]
            assert len(stored) - len(ran) == 2, "the asset's and the check's plans are stored before the run starts"
        latest = instance.get_latest_materialization_event(dg.AssetKey("made"))
        assert latest is not None and latest.run_id == results[1].run_id


def test_a_storage_of_another_kind_is_left_alone() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert not keep_engines(instance)


@pytest.mark.parametrize("extra", [1, 98, 99])
def test_dagster_folds_the_versions_of_partitions_and_points_at_its_newest_event(extra: int) -> None:
    """The rules that the as-of walk rests on, with 2, 99 and 100 partitions above."""
    names = [f"p{i:02d}" for i in range(extra + 1)]
    above = dg.AssetSpec("above", partitions_def=dg.StaticPartitionsDefinition(names))

    @dg.asset(deps=[above])
    def below() -> None: ...

    graph = dg.Definitions(assets=[above, below]).resolve_asset_graph()
    with dg.DagsterInstance.ephemeral() as instance:
        for name in names[:2]:
            event = dg.AssetMaterialization("above", partition=name, tags={"dagster/data_version": f"version of {name}"})
            instance.report_runless_asset_event(event)
        dg.materialize([above, below], selection=["below"], instance=instance)
        assert parent_partitions(instance, graph, dg.AssetKey("below"), None, dg.AssetKey("above")) == names
        (record,) = instance.fetch_materializations(dg.AssetKey("below"), limit=1).records
        (newest,) = instance.fetch_materializations(dg.AssetKey("above"), limit=1).records
    provenance = provenance_of(record)
    assert provenance is not None
    assert provenance.input_storage_ids == {dg.AssetKey("above"): newest.storage_id}, "look at resources/dagster_private.py"
    folded = combined_version((name, f"version of {name}") for name in names[:2])
    wanted = folded if len(names) < UNFOLDED_PARTITIONS else "version of p01"
    assert provenance.input_data_versions[dg.AssetKey("above")].value == wanted, "look at resources/dagster_private.py"
