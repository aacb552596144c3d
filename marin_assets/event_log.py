"""Read Dagster's event log as evidence of lineage: its materializations, and the as-of walk from one of them to its
inputs.

A step's tag `dagster/input_event_pointer/<key>` names the newest event of *any* partition of an input, so it is a
cursor and not an edge: the version of a partition is that of its newest event at or before the pointer
(docs/references.md#dagster-traps). The walk is checked against the version that Dagster recorded beside the pointer;
for an input with partitions that is a combined version.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from lineage.artifact.spec import InputRef
from lineage.artifact.store import Artifact
from lineage.graph.consistency import LogEvent, Parent, combined_version
from resources.dagster_private import UNFOLDED_PARTITIONS, BaseAssetGraph, DataProvenance, parent_partitions, provenance_of

VERSION_TAG, MANIFEST_TAG, REBUILT_TAG = "marin/version", "marin/manifest", "marin/rebuilt"
INPUTS = "inputs"
"""Metadata of an event: the inputs of its manifest, as JSON."""
STAGE_METADATA = "marin/stage"
"""Metadata on the definition of every asset whose materializations are artifacts."""
LEFT_OUT = "left-out"
"""Data version of a partition that intentionally has no artifact."""
PAGE = 500


def reports(instance: dg.DagsterInstance, artifact: Artifact, *, newest: int) -> bool:
    """Whether one of the newest events of an artifact's asset and partition reports exactly this artifact."""
    key, partition = dg.AssetKey(list(artifact.spec.key)), artifact.spec.partition
    place = dg.AssetRecordsFilter(key, asset_partitions=None if partition is None else [partition])
    events = [record.asset_materialization for record in instance.fetch_materializations(place, limit=newest).records]
    return any(event is not None and (event.tags or {}).get(VERSION_TAG) == artifact.spec.version for event in events)


@dataclass(frozen=True)
class Reported:
    """Return a materialization as it was stored, without its pictures and tables."""

    number: int
    key: dg.AssetKey
    partition: str | None
    data_version: str
    version: str
    manifest: str
    inputs: tuple[InputRef, ...] | None
    run_id: str
    is_rebuilt: bool
    provenance: DataProvenance | None
    garbled: str = ""
    """Why its tags about inputs cannot be read: somebody else than Dagster wrote them. Empty if they can."""


@dataclass(frozen=True)
class EventLog:
    """Yield every materialization of some assets, the oldest first."""

    reported: tuple[Reported, ...]

    @cached_property
    def _by_place(self) -> dict[tuple[dg.AssetKey, str | None], tuple[list[int], list[Reported]]]:
        by_place: dict[tuple[dg.AssetKey, str | None], tuple[list[int], list[Reported]]] = {}
        for event in self.reported:
            numbers, events = by_place.setdefault((event.key, event.partition), ([], []))
            numbers.append(event.number)
            events.append(event)
        return by_place

    def newest(self, key: dg.AssetKey, partition: str | None) -> Reported | None:
        """Return the newest event of a partition."""
        _, events = self._by_place.get((key, partition), ([], []))
        return events[-1] if events else None

    def as_of(self, key: dg.AssetKey, partition: str | None, pointer: int) -> Reported | None:
        """Return the newest event of a partition at or before a pointer."""
        numbers, events = self._by_place.get((key, partition), ([], []))
        index = bisect_right(numbers, pointer)
        return events[index - 1] if index else None


def read_log(instance: dg.DagsterInstance) -> EventLog:
    """Scan the log's materializations once."""
    events = [event for key in instance.get_asset_keys() for event in _materializations(instance, key)]
    return EventLog(tuple(sorted(events, key=lambda event: event.number)))


def witnessed(
    instance: dg.DagsterInstance, graph: BaseAssetGraph, log: EventLog, keys: Collection[tuple[str, ...]]
) -> Iterator[LogEvent]:
    """Yield the log's events about artifacts: those that name one, and all of an asset that holds some (`keys`, or its
    stage).
    """
    for event in log.reported:
        key = tuple(event.key.path)
        holds = key in keys or (graph.has(event.key) and STAGE_METADATA in graph.get(event.key).metadata)
        if event.data_version != LEFT_OUT and (event.version or holds):
            parents = tuple(parents_asof(instance, graph, log, event))
            reported = (event.data_version, event.version, event.manifest, event.inputs)
            yield LogEvent(event.number, key, event.partition, *reported, parents, event.run_id)


def parents_asof(instance: dg.DagsterInstance, graph: BaseAssetGraph, log: EventLog, event: Reported) -> Iterator[Parent]:
    """Yield the inputs of an event, one for each direct dependency in the graph: as of its step's start, or why that
    is unknown.
    """
    above = sorted(graph.get(event.key).parent_keys) if graph.has(event.key) else []
    for parent in above:
        silence = _silence(event, parent)
        if event.garbled:
            yield Parent(tuple(parent.path), recorded=event.garbled, expected="tags as Dagster writes them")
            continue
        if silence:
            yield Parent(tuple(parent.path), unknown=silence)
        else:
            yield _parent_asof(instance, graph, log, event, parent)


def _silence(event: Reported, parent: dg.AssetKey) -> str:
    """Return why the event does not say which version of an input it read; empty if it does.

    Dagster gives an event that is reported without a run no pointers. One that has them is judged by them.
    """
    if event.provenance is None or parent not in event.provenance.input_storage_ids:
        if not event.run_id:
            return "reported without a run: Dagster records no pointers"
        return "no pointer was recorded (reported inside another asset's step, or the graph had no such edge then)"
    if event.provenance.input_storage_ids[parent] is None:
        return "the pointer is NULL: the log had no event of it when the step began"
    if parent not in event.provenance.input_data_versions:
        return "no version was recorded beside the pointer"
    return ""


def _parent_asof(
    instance: dg.DagsterInstance, graph: BaseAssetGraph, log: EventLog, event: Reported, parent: dg.AssetKey
) -> Parent:
    assert event.provenance is not None  # `_silence` has checked it.
    path, pointer = tuple(parent.path), event.provenance.input_storage_ids[parent]
    assert pointer is not None
    recorded = event.provenance.input_data_versions[parent].value
    if pointer >= event.number:
        return Parent(path, recorded=f"{recorded}, by event {pointer}, which is later", expected="an earlier event")
    partitions: list[str | None] = [None]
    if graph.get(parent).is_partitioned:
        if graph.get(event.key).is_partitioned and event.partition is None:
            return Parent(path, unknown="the event has no partition, its asset has")
        partitions = [*parent_partitions(instance, graph, event.key, event.partition, parent)]
    if len(partitions) >= UNFOLDED_PARTITIONS:
        why = f"{len(partitions)} partitions: from {UNFOLDED_PARTITIONS} on Dagster records the last event's version only"
        return Parent(path, unknown=why)
    events = [(partition, log.as_of(parent, partition, pointer)) for partition in partitions]
    versions = tuple((partition, event.data_version) for partition, event in events if event is not None)
    if not versions:
        return Parent(path, unknown="the events that the pointer means are gone")
    expected = combined_version(versions) if graph.get(parent).is_partitioned else versions[0][1]
    return Parent(path, recorded, tuple(pair for pair in versions if pair[1] != LEFT_OUT), expected)


def _materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[Reported]:
    cursor = None
    while True:
        page = instance.fetch_materializations(key, limit=PAGE, cursor=cursor, ascending=True)
        yield from (_reported(record) for record in page.records)
        if not page.has_more:
            return
        cursor = page.cursor


def _reported(record: dg.EventLogRecord) -> Reported:
    event = record.asset_materialization
    assert event is not None  # Only materializations were requested.
    tags = event.tags or {}
    provenance, garbled = None, ""
    try:
        provenance = provenance_of(record)
    except ValueError as error:
        garbled = f"tags that cannot be read ({error})"
    return Reported(
        number=record.storage_id,
        key=event.asset_key,
        partition=event.partition,
        data_version=tags.get("dagster/data_version", ""),
        version=tags.get(VERSION_TAG, ""),
        manifest=tags.get(MANIFEST_TAG, ""),
        inputs=_inputs(event.metadata.get(INPUTS)) if VERSION_TAG in tags else None,
        run_id=record.run_id,
        is_rebuilt=REBUILT_TAG in tags,
        provenance=provenance,
        garbled=garbled,
    )


def _inputs(value: dg.MetadataValue | None) -> tuple[InputRef, ...] | None:
    recorded: Any = value.value if isinstance(value, dg.JsonMetadataValue) else None
    return None if recorded is None else tuple(InputRef.from_record(ref) for ref in recorded)
