"""Find what was committed while nobody watched: artifacts of jobs that outlived their step, and shards of runners at
work.

A step reports what it made. If a step dies, its job continues and commits. Then the store has an artifact that Dagster
does not know until somebody materializes it again. This sensor finds it from manifests alone, by one listing a tick.
"""

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import dagster as dg

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import MissingArtifactError, find_all
from lineage.shards.shared import FAILURE_NAME, RECORD_NAME, SHARED_FOLDER, about
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.event_log import reports
from marin_assets.factory import AssetTemplate, Skipped
from resources.lab import Lab

GRACE_SECONDS = 300.0
"""Seconds. A step reports what it made after its checks; only an artifact that nobody has reported after this time is an
orphan.
"""
NEWEST = 20
"""Events of a partition to search: the artifact may have been made again since, under another identity."""
KNOWN_CHARS = 8
"""Digits of an identity in the cursor: 10,000 artifacts take 90 KB there."""


def committed_sensor(
    families: Iterable[AssetTemplate], *, grace_seconds: float = GRACE_SECONDS, interval_seconds: int = 60
) -> dg.SensorDefinition:
    """Return a sensor over both stores for some assets. What exists at its first tick counts as known: `marin
    rebuild-event-log` makes a lost event log again.
    """
    by_key = {family.example.key: family for family in families}

    @dg.sensor(
        name="committed_artifacts",
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports artifacts whose job outlived the step that watched it, and how far runners of shards are.",
    )
    def committed(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        before = json.loads(context.cursor or "{}")
        there = {address: store for store in (lab.store, lab.ferry_store) for address in _addresses(store, by_key)}
        known = set(before["known"].split()) if before else {_short(address) for address in there}
        waiting: dict[str, float] = before.get("waiting", {})
        now = time.time()  # a clock that stepped back starts the wait again
        waiting = {a: min(waiting.get(a, now), now) for a in there if _short(a) not in known or a in waiting}
        due = [address for address, since in waiting.items() if now - since >= grace_seconds]
        artifacts = [artifact for address in due if (artifact := there[address].open(address)) is not None]
        unreported = [artifact for artifact in artifacts if not reports(context.instance, artifact, newest=NEWEST)]
        orphans = [artifact for artifact in unreported if _is_meant(by_key[artifact.spec.key], lab, artifact, context.instance)]
        shards = dict(_shards(lab.store)) | dict(_shards(lab.ferry_store))
        changed = [event for place, event in shards.items() if before.get("shards", {}).get(place) != event.description]
        cursor = {
            "known": " ".join(sorted({_short(address) for address in there})),
            "waiting": {address: since for address, since in waiting.items() if address not in due},
            "shards": {place: event.description for place, event in shards.items()},
        }
        events = [*(_materialization(artifact) for artifact in orphans), *changed]
        if not events:
            return dg.SensorResult(
                skip_reason=f"{len(there)} artifacts, none that its asset means and nobody reported", cursor=json.dumps(cursor)
            )
        return dg.SensorResult(asset_events=events, cursor=json.dumps(cursor))

    return committed


def _addresses(store: Store, keys: Collection[tuple[str, ...]]) -> Iterator[str]:
    """Return addresses of every artifact of some keys by one listing; no manifest is read."""
    for path in store.storage.stamps(MANIFEST_NAME):
        address = path.rpartition("/")[0]
        if tuple(address.split("/")[:-2]) in keys:
            yield address


def _is_meant(family: AssetTemplate, lab: Lab, artifact: Artifact, instance: dg.DagsterInstance) -> bool:
    """Whether the asset means this artifact today. A partition may hold others: a ferry's day has every step that its
    run saved on the way, a job of an older declaration may commit late, and a partition may no longer be declared.
    """
    declared = family.partitions_def
    keys = [None] if declared is None else declared.get_partition_keys(dynamic_partitions_store=instance)
    if artifact.spec.partition not in keys:
        return False
    try:
        node = family.node_at(lab, artifact.spec.partition)
    except MissingArtifactError:  # The inputs of the partition are gone, for example a day's roster that has expired.
        return False
    if isinstance(node, Skipped):
        return False
    meant = find_all(family.store_of(lab), [node])[0]
    return meant is not None and meant.spec.version == artifact.spec.version


def _short(address: str) -> str:
    return address.rpartition("/")[2][:KNOWN_CHARS]


def _materialization(artifact: Artifact) -> dg.AssetMaterialization:
    description = "committed by a job whose step was gone"
    return materialization(artifact, recorded(artifact) | provenance(artifact), description)


def _shards(store: Store) -> Iterator[tuple[str, dg.AssetObservation]]:
    """Return how many shards lie in the shared place, for every artifact that runners work on; by that place."""
    counts: dict[str, Counter[str]] = {}
    for record in (RECORD_NAME, FAILURE_NAME):
        for path in store.storage.files.listing(SHARED_FOLDER, record):
            counts.setdefault(path.split("/")[-3], Counter())[record] += 1
    for place, count in counts.items():
        progress = about(store.storage, f"{SHARED_FOLDER}/{place}")
        if progress is not None:
            yield place, _observation(progress, count)


def _observation(progress: Mapping[str, object], count: Mapping[str, int]) -> dg.AssetObservation:
    key, partition = progress["key"], progress["partition"]
    finished, failed = count.get(RECORD_NAME, 0), count.get(FAILURE_NAME, 0)
    assert isinstance(key, list) and (partition is None or isinstance(partition, str))  # As `SharedShards.announce` wrote it.
    return dg.AssetObservation(
        dg.AssetKey(key),
        partition=partition,
        description=f"{finished} shards finished, {failed} given up",
        metadata={"shards_finished": finished, "shards_given_up": failed},
    )
