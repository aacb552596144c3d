"""The sensor of commits: artifacts and shards that no step reported are found from the store alone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from sharded_stage import NAMES, lengths

from lineage.artifact.store import Store
from lineage.build.nodes import MissingArtifactError, Node, spec_of
from lineage.build.plan import build
from lineage.shards.failures import ShardFailure
from lineage.shards.shared import SharedShards
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.event_log import VERSION_TAG
from marin_assets.factory import AssetTemplate, family_asset
from resources.lab import Lab, LabResource
from sensors.committed import committed_sensor


@dataclass(frozen=True)
class Text:
    text: str


def write(out: Writer, config: Text) -> None:
    (out.folder / "text").write_text(config.text)
    out.record(rows_in=1, rows_out=1, drops={})


def node(text: str, config: str = "") -> Node:
    return Node(("written",), text, Stage("tests.written", "1", write), Text(config or text))


def declared(lab: Lab, partition: str) -> Node:
    """The roster of `expired` is gone. A partition that nothing declares has no node at all."""
    if partition == "expired":
        raise MissingArtifactError(node("roster"), lab.store)
    assert partition in ("before", "orphan", "watched"), partition
    return node(partition)


FAMILIES = tuple(
    AssetTemplate(
        example, node_at, lambda lab: lab.store, "corpora", "W.", frozenset(), dg.StaticPartitionsDefinition(list(partitions))
    )
    for example, node_at, partitions in (
        (node("watched"), lambda lab, p: declared(lab, str(p)), ("before", "orphan", "watched", "expired")),
        (lengths(), lambda lab, p: lengths(), ("p",)),
    )
)


@pytest.fixture
def resource(tmp_path: Path) -> LabResource:
    return LabResource(root=str(tmp_path), workers=1)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


def tick(instance: dg.DagsterInstance, resource: LabResource, cursor: str | None, grace: float = 0.0) -> dg.SensorResult:
    sensor = committed_sensor(FAMILIES, grace_seconds=grace)
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lab": resource}) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    return result


def test_an_artifact_that_no_step_reported_is_reported_once_after_the_grace(
    instance: dg.DagsterInstance, resource: LabResource
) -> None:
    store = resource.lab().store
    build(store, node("before"))
    first = tick(instance, resource, None)
    assert not first.asset_events, "what was there when the sensor began is known"
    orphan = build(store, node("orphan")).artifact
    assert dg.materialize(
        [family_asset(FAMILIES[0])], resources={"lab": resource}, instance=instance, partition_key="watched"
    ).success
    young = tick(instance, resource, first.cursor, grace=60.0)
    assert not young.asset_events
    second = tick(instance, resource, young.cursor)
    (event,) = second.asset_events
    assert (event.partition, event.tags[VERSION_TAG]) == ("orphan", orphan.spec.version)
    assert event.metadata["rows_out"].value == 1
    third = tick(instance, resource, second.cursor)
    assert not third.asset_events and third.skip_reason is not None
    assert "3 artifacts, none" in str(third.skip_reason.skip_message)


def test_a_clock_that_steps_back_delays_a_report_by_one_grace_only(instance: dg.DagsterInstance, resource: LabResource) -> None:
    """The cursor of an earlier tick was written by a clock that was a day ahead."""
    first = tick(instance, resource, None)
    build(resource.lab().store, node("orphan"))
    young = tick(instance, resource, first.cursor, grace=60.0)
    ahead = json.loads(young.cursor or "")
    assert ahead["waiting"]
    ahead["waiting"] = {address: since + 86_400 for address, since in ahead["waiting"].items()}
    assert len(tick(instance, resource, json.dumps(ahead), grace=0.0).asset_events) == 1


def test_what_the_asset_does_not_mean_is_no_orphan(instance: dg.DagsterInstance, resource: LabResource) -> None:
    """A run of a day saves steps on the way to the day's place, and a job may outlive the declaration that it was made for."""
    store = resource.lab().store
    cursor = tick(instance, resource, None).cursor
    for other in (node("orphan", "an earlier step"), node("expired"), node("undeclared")):
        build(store, other)
    cursor = tick(instance, resource, cursor).cursor
    build(store, node("orphan"))
    last = tick(instance, resource, cursor)
    assert [event.description for event in last.asset_events] == ["committed by a job whose step was gone"]
    (record,) = instance.fetch_materializations(dg.AssetKey("written"), limit=10).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.tags == last.asset_events[0].tags


def test_shards_of_runners_are_observed_as_they_come(
    instance: dg.DagsterInstance, resource: LabResource, tmp_path: Path
) -> None:
    store: Store = resource.lab().store
    spec = spec_of(store, lengths())
    shared = SharedShards(store.storage, spec.version, "code")
    shared.announce(spec)
    cursor = tick(instance, resource, None).cursor
    for name in NAMES[:2]:
        (tmp_path / name).mkdir()
        shared.publish(name, tmp_path / name, {})
    shared.fail(ShardFailure("c", "permanent", "ValueError", "", ()))
    seen = tick(instance, resource, cursor)
    (event,) = seen.asset_events
    assert isinstance(event, dg.AssetObservation)
    assert (event.asset_key, event.partition) == (dg.AssetKey(["tests", "lengths"]), "p")
    assert (event.metadata["shards_finished"].value, event.metadata["shards_given_up"].value) == (2, 1)
    assert not tick(instance, resource, seen.cursor).asset_events, "nothing has changed"
    shared.delete()
    assert not tick(instance, resource, seen.cursor).asset_events
