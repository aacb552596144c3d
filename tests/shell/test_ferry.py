"""A ferry through Dagster: its records, its reuse, and their agreement with the manifests."""

from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from small import FinishedFerry
from small_runs import DAY, small_declarations, small_ferry, small_run

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.trust.gate import inspect
from marin_assets.definitions import build_defs
from recipes import ferry as recipe
from recipes.ferry import Ferry
from resources.lab import Lab, LabResource


def test_the_ferry_passes_and_every_asset_of_it_is_materialized(finished_ferry: FinishedFerry) -> None:
    assert finished_ferry.run.status is dg.DagsterRunStatus.SUCCESS
    keys = [spec.key for spec in finished_ferry.definitions.resolve_all_asset_specs() if spec.key.path[0] == "ferry"]
    for key in keys:
        assert finished_ferry.instance.get_materialized_partitions(key) == {DAY}, key


def test_dagster_and_manifests_name_the_same_bytes(finished_ferry: FinishedFerry) -> None:
    run = recipe.rostered_run(finished_ferry.ferry, finished_ferry.lab.ferry_store, DAY)
    for node in recipe.nodes(run):
        artifact = resolve(finished_ferry.lab.ferry_store, node)
        event = finished_ferry.instance.get_latest_data_version_record(dg.AssetKey(list(node.key)), partition_key=DAY)
        assert event is not None, node.name
        assert event.asset_materialization.tags["dagster/data_version"] == artifact.data_version


def test_rows_are_conserved_and_said_so_in_the_ui(finished_ferry: FinishedFerry) -> None:
    key = dg.AssetKey(["ferry", "corpus", "small", "vendored_prose"])
    event = finished_ferry.instance.get_latest_materialization_event(key)
    assert event is not None
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    drops = sum(record.data["documents"] for record in metadata["drops"]) if "drops" in metadata else 0
    assert metadata["rows_in"] == metadata["rows_out"] + drops


def shown(finished_ferry: FinishedFerry, *key: str) -> dict[str, dg.MetadataValue]:
    """The metadata of the newest materialization of an asset."""
    event = finished_ferry.instance.get_latest_materialization_event(dg.AssetKey(list(key)))
    assert event is not None and event.asset_materialization is not None
    return dict(event.asset_materialization.metadata)


def test_the_ui_shows_learning_curves_columns_and_the_report(finished_ferry: FinishedFerry) -> None:
    checkpoint = shown(finished_ferry, "ferry", "runs", "smoke", "checkpoint")
    assert str(checkpoint["loss_curve"].value).startswith("![picture](data:image/png;base64,")
    records = finished_ferry.instance.fetch_observations(
        dg.AssetKey(["ferry", "runs", "smoke", "checkpoint"]), limit=100
    ).records
    seen = [record.asset_observation.metadata for record in records if record.asset_observation is not None]
    losses = [metadata["loss_nats"] for metadata in seen if "loss_nats" in metadata]
    assert len(losses) >= 2 and all(isinstance(each, dg.FloatMetadataValue) for each in losses), "the UI plots floats"
    schema = shown(finished_ferry, "ferry", "datakit", "normalized", "vendored_prose")["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    assert {"id", "text"} <= {column.name for column in schema.value.columns}
    page = shown(finished_ferry, "ferry", "report")["page"]
    assert isinstance(page, dg.UrlMetadataValue) and page.url.endswith("/report.html")


def test_a_second_ferry_reuses_every_artifact(finished_ferry: FinishedFerry) -> None:
    before = {artifact.spec.address for artifact in finished_ferry.lab.ferry_store.artifacts()}
    result = finished_ferry.definitions.resolve_job_def("smoke_ferry").execute_in_process(
        partition_key=DAY, instance=finished_ferry.instance
    )
    assert {artifact.spec.address for artifact in finished_ferry.lab.ferry_store.artifacts()} == before
    events = result.asset_materializations_for_node("ferry__report")
    assert events[0].metadata["reused"].value is True


def test_the_audit_can_be_walked_with_the_database_gone(finished_ferry: FinishedFerry) -> None:
    store = Store(finished_ferry.lab.ferry_store.root)
    audit = resolve(store, recipe.final_audit(recipe.rostered_run(finished_ferry.ferry, store, DAY)))
    stages = {ancestor.spec.stage for ancestor in store.walk_up(audit)}
    assert {"datakit.raw", "datakit.corpus", "lineage.mixture", "trainer.checkpoint", "evals.suite"} <= stages


def test_the_loss_falls(finished_ferry: FinishedFerry) -> None:
    run = recipe.rostered_run(finished_ferry.ferry, finished_ferry.lab.ferry_store, DAY)
    checkpoint = resolve(finished_ferry.lab.ferry_store, recipe.final_checkpoint(run))
    losses = pl.read_parquet(checkpoint.files("metrics.parquet")[0])["loss_nats"]
    assert losses.tail(5).mean() < losses[0] - 0.5


@pytest.mark.slow
def test_the_same_nodes_without_dagster_give_the_same_bytes(finished_ferry: FinishedFerry, tmp_path: Path) -> None:
    """Worker counts, attempts and the orchestrator change no data file: 1 worker here, 2 in the ferry."""
    lab = Lab.at(str(tmp_path), execution=Execution(1))
    build(lab.ferry_store, recipe.roster(finished_ferry.ferry, DAY, reachable=True))
    for node in recipe.nodes(finished_ferry.ferry.run(DAY, reachable=True)):
        if node.key[-1] == "report":  # it shows seconds
            continue
        direct = build(lab.ferry_store, node, launcher=lab.launcher).artifact
        assert direct.data_version == resolve(finished_ferry.lab.ferry_store, node).data_version, node.name


def test_a_broken_promise_fails_the_ferry_and_names_it(tmp_path: Path) -> None:
    """Half the documents of a committed artifact vanish behind the manifest's back: the next ferry must not pass."""
    ferry = small_ferry()
    resource = LabResource(root=str(tmp_path), workers=1)
    definitions = build_defs(resource, ferry=ferry, declared=small_declarations())
    lab = Lab.at(str(tmp_path), execution=Execution(1))
    build(lab.ferry_store, recipe.roster(ferry, DAY, reachable=True))
    raw, normalized = (
        build(lab.ferry_store, node).artifact
        for node in recipe.nodes(ferry.run(DAY, reachable=True))
        if node.key[-1] == "vendored_prose" and node.stage.name in ("datakit.raw", "datakit.normalize")
    )
    assert raw.spec.stage == "datakit.raw"
    part = normalized.files(".parquet", under="documents/")[0]
    documents = pl.read_parquet(part)
    documents.head(documents.height // 2).write_parquet(part)
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def("smoke_ferry").execute_in_process(
            partition_key=DAY, instance=instance, raise_on_error=False
        )
        kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
        failed = [e.asset_check_evaluation_data for e in result.all_events if e.event_type is kind]
        names = {(e.asset_key.to_user_string(), e.check_name) for e in failed if not e.passed}
    assert not result.success
    assert any("normalized" in key for key, _ in names), names
    problems = {finding.problem for finding in inspect(lab.ferry_store, [normalized.ref("input")], {})}
    assert problems == {"failed", "damaged"}, "a later run of what lies downstream, alone, must meet the failure at the gate"


def test_a_source_that_the_roster_leaves_out_is_said_to_be(finished_ferry: FinishedFerry, tmp_path: Path) -> None:
    """The offline day: the asset of a left-out source materializes with its reason, and nothing else breaks."""
    ferry = Ferry(online=small_run("smoke", "vendored_prose", "python_topics"), offline=small_run("smoke"))
    resource = LabResource(root=str(tmp_path), workers=1)
    definitions = build_defs(resource, ferry=ferry, declared=small_declarations())
    lab = Lab.at(str(tmp_path), execution=Execution(1))
    build(lab.ferry_store, recipe.roster(ferry, DAY, reachable=False))
    asset = definitions.resolve_assets_def(dg.AssetKey(["ferry", "datakit", "raw", "python_topics"]))
    with dg.instance_for_test() as instance:
        result = dg.materialize([asset], partition_key=DAY, instance=instance)
        event = result.asset_materializations_for_node("ferry__datakit__raw__python_topics")[0]
    assert "does not name python_topics" in event.metadata["left_out"].value
