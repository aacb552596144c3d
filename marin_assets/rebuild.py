"""Make Dagster's event log again from manifests: for a lost database, or a bucket that another machine filled.

It reports one runless event for each artifact (key, partition, data version, numbers, inputs, when it was made), what a
finished ferry left out, and the verdicts. It cannot restore runs and their logs, pictures, checks that passed (they leave no
verdict), code versions, and Dagster's input pointers, which only a run records. So the as-of walk reports "unknown" for these
events, and the inputs of the manifest in each event's metadata are compared instead.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from datakit.sources.raw import RAW
from evals.reports.report import REPORT
from lineage.artifact.store import Artifact, Store
from lineage.graph.check_tables import Finding, every_manifest
from lineage.graph.edges import tables_of
from lineage.graph.walk import LineageGraph
from lineage.progress import track
from lineage.trust.verdicts import verdicts
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.event_log import LEFT_OUT, REBUILT_TAG, STAGE_METADATA, EventLog, read_log
from resources.dagster_private import BaseAssetGraph
from trainer.spec.stage import CHECKPOINT


@dataclass(frozen=True)
class Rebuilt:
    """The result of a rebuild: reported addresses, the number that the log had, addresses older than what it shows, and
    unsound ones.
    """

    reported: tuple[str, ...]
    present: int
    older: tuple[str, ...]
    unsound: tuple[Finding, ...]
    verdicts: int


def rebuild_event_log(
    stores: Sequence[Store], instance: dg.DagsterInstance, graph: BaseAssetGraph, *, fill_gaps: bool = False
) -> Rebuilt:
    """Report every artifact of some stores that the log lacks: in the graph's order, the older first within an asset.

    An artifact that is older than the one that the log shows for its asset and partition is left out, because the UI
    shows the newest event. Raises: ValueError if the log has events of its own and lacks artifacts, unless `fill_gaps`.
    """
    log = read_log(instance)
    artifacts, unsound = _oldest_first(stores)
    known = {(tuple(event.key.path), event.version) for event in log.reported}
    missing = [artifact for artifact in artifacts if (artifact.spec.key, artifact.spec.version) not in known]
    own = sum(not event.is_rebuilt for event in log.reported)
    if missing and own and not fill_gaps:
        state = f"the event log has {own} events of its own, and no event of {len(missing)} artifacts ({missing[0].name}, ...)"
        raise ValueError(f"{state}; a rebuild is for an empty log: give --fill-gaps to report what is missing")
    if own and not fill_gaps:
        return Rebuilt((), len(artifacts), (), unsound, 0)
    created = {artifact.spec.version: artifact.manifest.created for artifact in artifacts}
    older, chosen = list[Artifact](), list[Artifact]()
    for artifact in missing:
        (older if _is_older(log, artifact, created) else chosen).append(artifact)
    left_out = [e for e in _left_out(graph, artifacts) if log.newest(e.asset_key, e.partition) is None]
    count = 0
    for item in track(_in_graph_order(graph, [*chosen, *left_out]), "event log", len(chosen) + len(left_out)):
        for event in _events(graph, item) if isinstance(item, Artifact) else [item]:
            instance.report_runless_asset_event(event)
            count += isinstance(event, dg.AssetCheckEvaluation)
    reported, kept_out = (tuple(artifact.spec.address for artifact in some) for some in (chosen, older))
    return Rebuilt(reported, len(artifacts) - len(missing), kept_out, unsound, count)


def _oldest_first(stores: Sequence[Store]) -> tuple[list[Artifact], tuple[Finding, ...]]:
    """Return the sound artifacts of all stores, each identity once (a waiver lies in several), and the unsound ones."""
    ordered: dict[str, Artifact] = {}
    unsound: list[Finding] = []
    for store in stores:
        manifests = every_manifest(store)
        unsound += manifests.unsound
        graph = LineageGraph(tables_of([(address, manifest, "") for address, manifest in manifests.sound.items()]))
        for address in graph.oldest_first(manifests.sound):
            ordered.setdefault(address, Artifact(store, manifests.sound[address]))
    return list(ordered.values()), tuple(unsound)


def _in_graph_order(
    graph: BaseAssetGraph, items: Sequence[Artifact | dg.AssetMaterialization]
) -> list[Artifact | dg.AssetMaterialization]:
    """Sort assets before those that depend on them; each asset's own items keep their order.

    Dagster compares events without input tags by time: an input that is reported later counts as a new one.
    """
    rank = {tuple(key.path): i for i, key in enumerate(graph.toposorted_asset_keys)}
    return sorted(items, key=lambda i: rank.get(i.spec.key if isinstance(i, Artifact) else tuple(i.asset_key.path), -1))


def _is_older(log: EventLog, artifact: Artifact, created: dict[str, str]) -> bool:
    shown = log.newest(dg.AssetKey(list(artifact.spec.key)), artifact.spec.partition)
    return shown is not None and created.get(shown.version, "") > artifact.manifest.created


def _dimensions(graph: BaseAssetGraph, artifact: Artifact) -> dict[str, tuple[dg.PartitionsDefinition, str]]:
    """Return dimension -> (definition, key) of the artifact's partition; one without a name for a plain definition."""
    key = dg.AssetKey(list(artifact.spec.key))
    definition = graph.get(key).partitions_def if graph.has(key) else None
    if definition is None or artifact.spec.partition is None:
        return {}
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return {"": (definition, artifact.spec.partition)}
    parts = artifact.spec.partition.split("|")
    return {one.name: (one.partitions_def, part) for one, part in zip(definition.partitions_defs, parts, strict=True)}


def _events(graph: BaseAssetGraph, artifact: Artifact) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    manifest, spec = artifact.manifest, artifact.spec
    metadata = {
        "rebuilt": dg.MetadataValue.text("from its manifest: no run of this log made it"),
        "made": dg.MetadataValue.timestamp(datetime.datetime.fromisoformat(manifest.created)),
        "made_by_run": dg.MetadataValue.text(manifest.run_id or "none"),
        "stage": dg.MetadataValue.text(f"{spec.stage}@{spec.stage_version}"),
        **recorded(artifact),
        **provenance(artifact),
    }
    dimensions = {name: key for name, (_, key) in _dimensions(graph, artifact).items() if name}
    tags = {REBUILT_TAG: "true", **{f"dagster/partition/{name}": key for name, key in dimensions.items()}}
    yield _tagged(materialization(artifact, metadata, "rebuilt from the manifest"), tags)
    training = dg.AssetKey([*spec.key[:-1], "training"])
    is_final = spec.stage == CHECKPOINT.name and spec.config["step"] == spec.config["run"]["num_steps"]
    if is_final and graph.has(training):
        yield _tagged(materialization(artifact, metadata, "rebuilt from the manifest", training), {REBUILT_TAG: "true"})
    for verdict in verdicts(artifact):
        if verdict.kind == "failed":
            yield dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(list(spec.key)),
                check_name=verdict.name,
                passed=not verdict.standing,
                description=f"{artifact.name}: {verdict.why} (rebuilt from the verdict of {verdict.when}, {verdict.who})",
            )


def _left_out(graph: BaseAssetGraph, artifacts: Sequence[Artifact]) -> Iterator[dg.AssetMaterialization]:
    """Yield, for every finished day of a ferry, the assets of sources that were not fetched that day, as the factory
    reports them.
    """
    there = {(artifact.spec.key, artifact.spec.partition) for artifact in artifacts}
    stages = {key: graph.get(key).metadata.get(STAGE_METADATA) for key in graph.get_all_asset_keys()}
    for prefix, day in [(a.spec.key[0], a.spec.partition) for a in artifacts if a.spec.stage == REPORT.name]:
        absent = [
            key for key, stage in stages.items() if stage and key.path[0] == prefix and (tuple(key.path), day) not in there
        ]
        unused = {key.path[-1] for key in absent if stages[key] == RAW.name}
        for key in sorted(key for key in absent if key.path[-1] in unused):
            metadata = {"left_out": dg.MetadataValue.text(f"the ferry of {day} ended without it")}
            tags = {"dagster/data_version": LEFT_OUT, REBUILT_TAG: "true"}
            yield dg.AssetMaterialization(key, partition=day, metadata=metadata, tags=tags)


def _tagged(event: dg.AssetMaterialization, more: dict[str, str]) -> dg.AssetMaterialization:
    return event._replace(tags={**(event.tags or {}), **more})
