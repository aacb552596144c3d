"""A canary for the private names that `resources/dagster_private.py` wraps."""

from pathlib import Path

import dagster as dg

from resources.dagster_private import UnresolvedAssetJobDefinition, keep_engines


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
