"""Compare three sources of lineage: manifests, the lineage tables, and an orchestrator's event log.

Manifests are authoritative. The log gives evidence in two ways: the content of its events (data version, digest of the
manifest, inputs), and its history (which version of each input was the newest when the step began, the as-of walk). What a log
cannot know (`Parent.unknown`) is reported as unknown, neither as agreement nor as disagreement.

This is a plain function over plain records; the shell reads the log (`marin_assets/event_log.py`).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lineage.artifact.manifest import Manifest
from lineage.artifact.spec import InputRef
from lineage.graph.check_tables import REMEDIES, Finding, Manifests

MANIFEST, TABLE, EVENT, WALK = "manifest", "lineage_edges", "event", "as-of walk"
"""The printed names of the sources."""


@dataclass(frozen=True)
class Parent:
    """The result of the as-of walk for one input asset of an event.

    `recorded` is the version that the log kept with the event: the version of an input without partitions, the
    `combined_version` of one with them. `walked` has (partition, data version) as the log's history gives them, `expected` what
    `recorded` should then be.
    """

    key: tuple[str, ...]
    recorded: str = ""
    walked: tuple[tuple[str | None, str], ...] = ()
    expected: str = ""
    unknown: str = ""
    """If not empty: why the log cannot know; the fields above have no meaning then."""


@dataclass(frozen=True)
class LogEvent:
    """One event of the log that reports an artifact as made. A field is empty if the event does not have it."""

    number: int
    key: tuple[str, ...]
    partition: str | None
    data_version: str
    version: str = ""
    """Identity of the artifact (`ArtifactSpec.version`), under whichever asset the event is reported."""

    manifest: str = ""
    """Digest of the manifest's text at the time of the event (`lineage.graph.check_tables.manifest_digest`)."""

    inputs: tuple[InputRef, ...] | None = None
    parents: tuple[Parent, ...] = ()
    run_id: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.key) + (f"[{self.partition}]" if self.partition else "")


@dataclass(frozen=True)
class Disagreement:
    """The kind, the artifact, what each source says (source, statement), and the remedy."""

    kind: str
    artifact: str
    said: tuple[tuple[str, str], ...]
    mend: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.artifact}: {'; '.join(f'{who}: {what}' for who, what in self.said)} ({self.mend})"


@dataclass(frozen=True)
class Unknown:
    """What one source cannot know: the artifact, the input asset if it is about one, and why."""

    artifact: str
    input: str
    why: str


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. `counts`: numbers of compared and confirmed statements, by name.

    `corrected`: false statements of older events, which a newer event of the same artifact corrects. Nobody can take them out
    of the log, so they are named and are no disagreement.
    """

    disagreements: tuple[Disagreement, ...]
    unknown: tuple[Unknown, ...]
    counts: Mapping[str, int]
    corrected: tuple[Disagreement, ...] = ()


def combined_version(versions: Iterable[tuple[str | None, str]]) -> str:
    """Return what Dagster 1.13 records for a partitioned input: the sha256 of all versions, joined in partition order."""
    ordered = [version for _, version in sorted(versions, key=lambda pair: pair[0] or "")]
    return hashlib.sha256("".join(ordered).encode()).hexdigest()


def compare(
    manifests: Manifests,
    table_findings: Iterable[Finding],
    events: Iterable[LogEvent],
    *,
    is_expired: Callable[[LogEvent], bool],
    remake: Callable[[tuple[str, ...], str | None], str],
) -> Comparison:
    """Return every disagreement and everything unknown, over the manifests of one or several stores.

    Of several events of one artifact the newest decides, so reporting it again repairs a disagreement; what older ones say
    otherwise is `corrected`. An event without a manifest is compared while it is the newest of its asset and partition, unless
    `is_expired` says that its artifact was deleted on time. `remake` gives the command that makes and reports an artifact
    (key, partition).
    """
    judged, older, orphans = _attributed(manifests, events)
    disagreements = [_of_finding(finding) for finding in table_findings]
    disagreements += [_orphan(event, remake) for event in orphans if not is_expired(event)]
    unknown = [Unknown(event.name, "", "its artifact was deleted on time") for event in orphans if is_expired(event)]
    counts: Counter[str] = Counter({"manifests": len(manifests.sound), "inputs in manifests": 0, "events": len(judged)})
    counts["inputs in manifests"] = sum(len(manifest.spec.inputs) for manifest in manifests.sound.values())
    moved = {form.address: address for address, manifest in manifests.sound.items() for form in manifest.earlier}
    for address, event in judged:
        manifest = manifests.sound[address]
        if event.version and event.version != manifest.spec.version:
            again = remake(manifest.spec.key, manifest.spec.partition)
            unknown.append(Unknown(event.name, "", f"an upgrade moved it to {address} since; {again} reports it there"))
        judgements = list(_judgements(event, manifest, manifests.digests[address], moved, remake, counts))
        disagreements += [one for one in judgements if isinstance(one, Disagreement)]
        unknown += [one for one in judgements if isinstance(one, Unknown)]
    newest = {(event.key, event.partition, address): event.number for address, event in judged}
    corrected = []
    for address, event in older:
        mend = f"event {newest[event.key, event.partition, address]} of the same artifact is newer and counts"
        false = _judgements(event, manifests.sound[address], manifests.digests[address], moved, remake, Counter())
        corrected += [replace(one, mend=mend) for one in false if isinstance(one, Disagreement)]
    silent = manifests.sound.keys() - {address for address, _ in judged}
    unknown += [Unknown(address, "", "the log has no event of it") for address in sorted(silent)]
    return Comparison(tuple(disagreements), tuple(unknown), dict(counts), tuple(corrected))


def _judgements(
    event: LogEvent,
    manifest: Manifest,
    digest: str,
    moved: Mapping[str, str],
    remake: Callable[[tuple[str, ...], str | None], str],
    counts: Counter[str],
) -> Iterator[Disagreement | Unknown]:
    """Yield what an event says otherwise than the manifest, and what it cannot say."""
    if event.version and event.version != manifest.spec.version:  # from before an upgrade
        yield from _other_bytes(event, manifest, remake(manifest.spec.key, manifest.spec.partition))
        return
    again = remake(event.key, event.partition)
    yield from _other_bytes(event, manifest, again)
    yield from _event_mismatches(event, manifest, digest, moved, again, counts)
    for key in dict.fromkeys(ref.key for ref in manifest.spec.inputs):
        yield from _walk_mismatches(event, manifest, key, again, counts)


type Attributed = tuple[str, LogEvent]
"""An address, and an event that is about the artifact there."""


def _attributed(manifests: Manifests, events: Iterable[LogEvent]) -> tuple[list[Attributed], list[Attributed], list[LogEvent]]:
    """Return the newest event of each artifact under one asset, the older ones, and newest events of an asset and partition
    without manifest."""
    by_version = {
        form.address.rpartition("/")[2]: address
        for address, manifest in manifests.sound.items()
        for form in manifest.earlier  # events that were reported before an upgrade changed the identity
    }
    by_version |= {manifest.spec.version: address for address, manifest in manifests.sound.items()}
    by_bytes = {(m.spec.key, m.spec.partition, m.data_version): address for address, m in manifests.sound.items()}
    newest: dict[tuple[tuple[str, ...], str | None], tuple[str | None, LogEvent]] = {}
    judged: dict[tuple[tuple[str, ...], str | None, str], LogEvent] = {}
    older: list[Attributed] = []
    for event in sorted(events, key=lambda event: event.number):
        place = event.key, event.partition
        address = by_version.get(event.version) if event.version else by_bytes.get((*place, event.data_version))
        newest[place] = address, event
        if address is not None:
            if (before := judged.get((*place, address))) is not None:
                older.append((address, before))
            judged[*place, address] = event
    orphans = [event for address, event in newest.values() if address is None]
    return [(address, event) for (_, _, address), event in judged.items()], older, orphans


def _other_bytes(event: LogEvent, manifest: Manifest, again: str) -> Iterator[Disagreement]:
    """Yield a disagreement if the event reports another data version than the manifest has."""
    if event.data_version != manifest.data_version:
        in_event = f"event {event.number} says {event.data_version or 'none'}"
        statements = ((MANIFEST, f"data version {manifest.data_version}"), (EVENT, in_event))
        yield Disagreement(
            "other_bytes", manifest.spec.name, statements, f"the manifest is authoritative; {again} reports it again"
        )


def _event_mismatches(
    event: LogEvent, manifest: Manifest, digest: str, moved: Mapping[str, str], again: str, counts: Counter[str]
) -> Iterator[Disagreement]:
    """Where the manifest's text or its inputs differ from what the event says outright.

    `moved` maps addresses from before upgrades to those of today.
    """
    name, number = manifest.spec.name, f"event {event.number}"
    if event.manifest and event.manifest not in {digest, *(form.manifest for form in manifest.earlier)}:
        statements = ((MANIFEST, f"its text has digest {digest}"), (EVENT, f"{number} was reported with {event.manifest}"))
        mend = f"the manifest was rewritten after it was reported: put the old one back, or delete the artifact and {again}"
        yield Disagreement("rewritten_manifest", name, statements, mend)
    if event.inputs is None:
        return
    wanted = {(r.name, r.address, r.data_version) for r in manifest.spec.inputs}
    in_event = {(r.name, moved.get(r.address, r.address), r.data_version) for r in event.inputs}
    counts["inputs that events confirm"] += len(wanted & in_event)
    for input_name, address, version in sorted(wanted ^ in_event):
        in_manifest = (input_name, address, version) in wanted
        edge = f"input {input_name} <- {address} ({version})"
        statements = (
            (MANIFEST, edge if in_manifest else f"no {edge}"),
            (EVENT, f"{number} has {'no ' if in_manifest else ''}{edge}"),
        )
        yield Disagreement("other_inputs", name, statements, f"the manifest is right; {again} reports it again")


def _walk_mismatches(
    event: LogEvent, manifest: Manifest, key: tuple[str, ...], again: str, counts: Counter[str]
) -> Iterator[Disagreement | Unknown]:
    """Yield where the as-of walk disagrees with the manifest on the inputs of one asset."""
    name, asset = manifest.spec.name, "/".join(key)
    wanted: dict[str | None, set[str]] = defaultdict(set)
    for ref in manifest.spec.inputs:
        if ref.key == key:
            wanted[ref.partition].add(ref.data_version)
    parent = next((parent for parent in event.parents if parent.key == key), None)
    if parent is None or parent.unknown:
        yield Unknown(name, asset, parent.unknown if parent else "the graph of today has no such edge")
        return
    walked = dict(parent.walked)
    if parent.recorded != parent.expected:
        one_each = [(partition, version) for partition, versions in wanted.items() for version in versions]
        if walked.keys() != wanted.keys() and parent.recorded == combined_version(one_each):
            why = (
                "other partitions were mapped then, or events are gone; what was recorded is the fold of the manifest's inputs"
            )
            yield Unknown(name, asset, why)
            return
        statements = (
            (MANIFEST, ", ".join(sorted(f"{asset}{_in(p)} {v}" for p, v in one_each))),
            (EVENT, f"event {event.number} records {parent.recorded} of {asset}"),
            (WALK, f"the events before it give {parent.expected}"),
        )
        mend = f"a tag was forged or events were deleted; the manifest is right; {again} reports it again"
        yield Disagreement("forged_tag", name, statements, mend)
        return
    for partition in sorted(walked.keys() | wanted.keys(), key=str):
        version, versions = walked.get(partition), wanted.get(partition, set())
        if version in versions:
            counts["inputs that the as-of walk confirms"] += 1
        elif version is None:
            yield Unknown(name, f"{asset}{_in(partition)}", "the log had no event of it when the step began")
        else:
            read = ", ".join(sorted(versions)) or "it is no input"
            statements = (
                (MANIFEST, f"{asset}{_in(partition)} {read}"),
                (WALK, f"{version} when event {event.number}'s step began"),
            )
            mend = f"the manifest is right; report that input, then {again} (what exists is reused and reported again)"
            yield Disagreement("other_input_version" if versions else "other_input", name, statements, mend)


def _orphan(event: LogEvent, remake: Callable[[tuple[str, ...], str | None], str]) -> Disagreement:
    version = f"data version {event.data_version}" if event.data_version else "no data version"
    statements = ((MANIFEST, "none has it"), (EVENT, f"event {event.number} (run {event.run_id or 'none'}) says {version}"))
    return Disagreement(
        "no_manifest", event.name, statements, f"{remake(event.key, event.partition)} makes it, or finds it, and reports it"
    )


def _of_finding(finding: Finding) -> Disagreement:
    """Turn a finding of `lineage.graph.check_tables` into a disagreement."""
    edge = f"input {finding.input} <- {finding.parent} ({finding.detail})" if finding.input else finding.detail
    statements = {
        "missing_edge": ((MANIFEST, edge), (TABLE, "no such row")),
        "forged_edge": ((MANIFEST, "no such input"), (TABLE, edge)),
        "missing_artifact": ((MANIFEST, "committed"), (TABLE, "no such row")),
        "forged_artifact": ((MANIFEST, "none, or another"), (TABLE, edge or "a row")),
    }.get(finding.kind, ((MANIFEST, edge or "not as it was committed"),))
    return Disagreement(finding.kind, finding.artifact, statements, REMEDIES[finding.kind])


def _in(partition: str | None) -> str:
    return f"[{partition}]" if partition else ""
