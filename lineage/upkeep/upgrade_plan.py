"""Plan the upgrade of a store: what has to change, from what, to what and why. Nothing is written."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace

from lineage.artifact.manifest import MANIFEST_NAME, EarlierForm, Manifest, UnsoundManifestError, sealed, sound_manifest
from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Store
from lineage.storage.digests import text_digest
from lineage.upkeep.migrations import MIGRATIONS, Migrations
from lineage.upkeep.old_verdicts import old_verdicts

UNSEALED_UNTIL = "2026-11-21T17:10:23"
"""UTC time of the commit that introduced seals. A later manifest without a seal was edited."""

type KeyOf = Callable[[ArtifactSpec], tuple[str, ...]]
"""The key that an artifact has today. It must return the key of an upgraded artifact unchanged."""


@dataclass(frozen=True)
class Change:
    """One line of a plan: what changes, from what, to what, and why."""

    name: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Rewrite:
    """One artifact whose manifest changes, and its new address if its identity changes too."""

    source: str
    target: str
    before: str
    """Text of the manifest as it is."""
    after: str
    """Text of the manifest as it will be."""
    is_unsealed: bool
    """Whether all data files must be verified first, because no seal has protected the manifest."""
    exists: bool
    """Whether the target is already there, with the same data version."""
    change: Change

    @property
    def moves(self) -> bool:
        return self.source != self.target


@dataclass(frozen=True)
class Plan:
    """What an upgrade will do. `rewrites` has inputs before what was made from them."""

    rewrites: tuple[Rewrite, ...]
    files: tuple[Change, ...]
    """Verdicts that move into the log."""

    problems: tuple[str, ...]
    """Artifacts that cannot be upgraded, and why. They stay as they are."""

    leftovers: tuple[str, ...] = ()
    """Old addresses without a manifest whose files a killed run did not remove."""

    @property
    def changes(self) -> tuple[Change, ...]:
        return (*(rewrite.change for rewrite in self.rewrites), *self.files)

    @property
    def is_empty(self) -> bool:
        return not (self.rewrites or self.files or self.leftovers)


def plan_upgrade(store: Store, key_of: KeyOf, migrations: Migrations = MIGRATIONS) -> Plan:
    """List what has to change in a store; nothing is written. `key_of` gives the key that an artifact has today."""
    standing = {where.rpartition("/")[0] for where in store.storage.stamps(MANIFEST_NAME)}
    manifests, texts, problems = _read_all(store, standing)
    moved: dict[str, InputRef] = {
        form.address: _ref(manifest.spec, manifest.data_version)
        for manifest in manifests.values()
        for form in manifest.earlier
        if form.address not in standing
    }
    leftovers = tuple(address for address in sorted(moved) if _is_leftover(store, address, standing))
    rewrites = []
    for address in _inputs_first(manifests):
        manifest = manifests[address]
        try:
            rewrite = _rewrite(manifest, texts[address], key_of, moved, manifests, migrations)
        except ValueError as error:
            problems.append(str(error))
            continue
        if rewrite is None:
            continue
        rewrites.append(rewrite)
        if rewrite.moves:
            moved[address] = _ref(_upgraded_spec(manifest.spec, key_of, moved), manifest.data_version)
    return Plan(tuple(rewrites), tuple(verdict_change(old.where) for old in old_verdicts(store)), tuple(problems), leftovers)


def _is_leftover(store: Store, address: str, standing: Collection[str]) -> bool:
    """Whether files lie at an old address, and no artifact at or below it."""
    below = f"{address}/"
    return not any(other.startswith(below) for other in standing) and bool(store.storage.sizes(address))


def _read_all(store: Store, addresses: Collection[str]) -> tuple[dict[str, Manifest], dict[str, str], list[str]]:
    """Return every sound manifest and its text, by address, and what is wrong with the others."""
    manifests: dict[str, Manifest] = {}
    texts: dict[str, str] = {}
    problems = []
    for address in sorted(addresses):
        where = f"{address}/{MANIFEST_NAME}"
        text = store.storage.read_text(where)
        if text is None:
            continue
        try:
            manifests[address] = sound_manifest(text, address, where)
            texts[address] = text
        except UnsoundManifestError as error:
            problems.append(f"{address}: {error}")
    return manifests, texts, problems


def _inputs_first(manifests: Mapping[str, Manifest]) -> list[str]:
    """Return the addresses in an order in which every artifact comes after its inputs."""
    ordered: dict[str, None] = {}
    for start in manifests:
        pending = [(start, False)]
        while pending:
            address, has_inputs = pending.pop()
            if address in ordered:
                continue
            if has_inputs:
                ordered[address] = None
                continue
            pending.append((address, True))
            pending += [(ref.address, False) for ref in manifests[address].spec.inputs if ref.address in manifests]
    return list(ordered)


def _ref(spec: ArtifactSpec, data_version: str) -> InputRef:
    return InputRef("", spec.key, spec.partition, data_version, spec.address)


def _upgraded_spec(spec: ArtifactSpec, key_of: KeyOf, moved: Mapping[str, InputRef]) -> ArtifactSpec:
    """Return the identity of an artifact under today's key, over inputs at their new addresses."""
    inputs = tuple(
        replace(moved[ref.address], name=ref.name, data_version=ref.data_version) if ref.address in moved else ref
        for ref in spec.inputs
    )
    return replace(spec, key=key_of(spec), inputs=inputs)


def _rewrite(
    manifest: Manifest,
    text: str,
    key_of: KeyOf,
    moved: Mapping[str, InputRef],
    manifests: Mapping[str, Manifest],
    migrations: Migrations,
) -> Rewrite | None:
    """How an artifact changes, or None. Raises: ValueError naming one that cannot be upgraded."""
    spec = _upgraded_spec(manifest.spec, key_of, moved)
    record = json.loads(text)
    schema = record["schema"]
    steps, is_unsealed = migrations.steps(schema), record.pop("seal", None) is None
    if not steps and spec == manifest.spec:
        return None
    if is_unsealed and manifest.created >= UNSEALED_UNTIL:
        raise ValueError(
            f"{manifest.spec.address}: its manifest has no seal although it was created on {manifest.created}, when every "
            "manifest had one: it was edited; delete the artifact and materialize it again"
        )
    standing = manifests.get(spec.address) if spec.address != manifest.spec.address else None
    if standing is not None and standing.data_version != manifest.data_version:
        raise ValueError(
            f"{manifest.spec.address}: it belongs at {spec.address} now, where an artifact of data version "
            f"{standing.data_version} stands (it has {manifest.data_version}); delete one of them"
        )
    for step in steps:
        record = step.change(record)
    record |= {
        "schema": max(schema, migrations.newest),
        "key": list(spec.key),
        "version": spec.version,
        "inputs": [asdict(ref) for ref in spec.inputs],
        "earlier": [*record.get("earlier", ()), asdict(EarlierForm(manifest.spec.address, schema, text_digest(text)))],
    }
    why = [step.why for step in steps]
    if spec.key != manifest.spec.key:
        why.append("its key has changed")
    if spec.inputs != manifest.spec.inputs:
        why.append("the address of an input has changed")
    seal = "without a seal" if is_unsealed else "sealed"
    change = Change(
        manifest.spec.name,
        f"schema {schema}, {seal}, {manifest.spec.address}",
        f"schema {record['schema']}, sealed, {spec.address}",
        "; ".join(why),
    )
    return Rewrite(manifest.spec.address, spec.address, text, sealed(record), is_unsealed, standing is not None, change)


def verdict_change(where: str) -> Change:
    """Return the change that moves a verdict file of before 2026-11-24 into the verdict log."""
    return Change(where, "a file beside the manifest", "a record of the verdict log", "verdicts are records of one log")
