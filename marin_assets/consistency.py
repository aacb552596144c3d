"""Compare a lab's manifests, lineage tables and Dagster event log (`lineage/graph/consistency.py` does the comparison)."""

import datetime
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import dagster as dg

from lineage.artifact.store import Store
from lineage.graph.check_tables import Finding, Manifests, check_tables, every_manifest
from lineage.graph.consistency import Comparison, LogEvent, Unknown, compare
from lineage.graph.edges import lineage_tables, read_tables
from marin_assets.event_log import read_log, witnessed
from resources.dagster_private import BaseAssetGraph
from resources.stores import FERRY_TTL_DAYS

log = logging.getLogger(__name__)

FERRY_PREFIX = "ferry"
CACHE_KINDS = frozenset({"missing_edge", "forged_edge", "forged_artifact"})
"""Disagreements in which only the lineage tables are wrong: they are a cache of the manifests."""


def check_consistency(
    stores: Sequence[Store], instance: dg.DagsterInstance, graph: BaseAssetGraph, today: datetime.date
) -> Comparison:
    """Compare the manifests of some stores, their lineage tables and an instance's event log.

    The tables are updated first, as every lineage query does, and the log is read before the manifests. So an artifact
    that is committed in between is missing in one of them, which is reported as unknown and not as a disagreement.
    """
    events = read_log(instance)
    read, findings = [], list[Finding]()
    for store in stores:
        _bring_up_to_date(store)
        manifests = every_manifest(store)
        findings += check_tables(manifests, read_tables(store))
        read.append(manifests)
    every = _merged(read)
    keys = {manifest.spec.key for manifest in every.sound.values()}
    comparison = compare(
        every,
        [finding for finding in findings if finding.kind != "missing_artifact"],
        witnessed(instance, graph, events, keys),
        is_expired=expired_on(today),
        remake=remake,
    )
    late = [Unknown(f.artifact, "", "not in the lineage tables yet") for f in findings if f.kind == "missing_artifact"]
    return replace(comparison, unknown=(*comparison.unknown, *late))


def reasons(unknown: Sequence[Unknown]) -> list[tuple[str, int]]:
    """Return why something is unknown, and how often, the most frequent first."""
    return Counter(one.why for one in unknown).most_common()


def expired_on(today: datetime.date) -> Callable[[LogEvent], bool]:
    """Return whether an event is of a ferry that is past its time to live."""
    oldest = (today - datetime.timedelta(days=FERRY_TTL_DAYS)).isoformat()
    return lambda event: event.key[0] == FERRY_PREFIX and event.partition is not None and event.partition < oldest


def remake(key: tuple[str, ...], partition: str | None) -> str:
    """Return the command that makes an artifact, or finds it, and reports it."""
    if key[0] in (FERRY_PREFIX, "canary") and partition is not None:
        return f"`./marin {key[0]} --day {partition}`"
    if key[0] == "runs" and key[-1] == "checkpoint":
        return f"`./marin materialize {'/'.join(key[:-1])}/training`"
    return f"`./marin materialize {'/'.join(key)}{f' --partition {partition}' if partition else ''}`"


def _bring_up_to_date(store: Store) -> None:
    try:
        lineage_tables(store)
    except ValueError as error:  # An edited manifest: `every_manifest` names it.
        log.warning("the lineage tables of %s are compared as they were saved: %s", store.root, error)


def _merged(read: Sequence[Manifests]) -> Manifests:
    sound = {address: manifest for manifests in read for address, manifest in manifests.sound.items()}
    digests = {address: digest for manifests in read for address, digest in manifests.digests.items()}
    return Manifests(sound, digests, tuple(finding for manifests in read for finding in manifests.unsound))
