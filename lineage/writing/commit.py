"""Commit an artifact: publish its data, write its manifest, delete what dead attempts left."""

import datetime
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace

from lineage.artifact.file_entries import file_entry
from lineage.artifact.made_by import this_process
from lineage.artifact.manifest import MANIFEST_NAME, FileEntry, Manifest, ResourceUse, ShardRecord, content_version, to_json
from lineage.artifact.store import Artifact, Store
from lineage.artifact.trash import in_trash
from lineage.commit_log.entries import announce
from lineage.shards.away import changed
from lineage.shards.run import ShardFolder, refuse_two_owners
from lineage.signing.sign import sign_manifest
from lineage.signing.statement import STRONG_STAGES
from lineage.storage.digests import file_sha256
from lineage.writing.working_folder import WORKING_FOLDERS, set_aside
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)


def commit(
    out: Writer,
    use: ResourceUse,
    code_fingerprint: str,
    run_id: str,
    packages: Mapping[str, str],
    replacing: Artifact | None,
) -> Manifest:
    """Make an attempt's folder an artifact. Returns the committed manifest: another writer's if it was first.

    Files of shards that other machines made are copied within the storage (`lineage.shards.away`).

    Raises: ValueError if a complete artifact would be replaced, or if a copied file is not what its writer wrote; RuntimeError
    if the winner's manifest vanished.
    """
    store, spec, folder = out.store, out.spec, out.folder
    away, fetched = out.away.settle(store.storage, folder, by_copy=spec.stage not in STRONG_STAGES)
    copied = {**out.elsewhere, **away}
    finished, written = ShardFolder(folder).records(out.shard_names), ShardFolder(folder).written(out.shard_names) | fetched
    finished |= out.away.records()
    refuse_two_owners({name: files for name, (files, _) in finished.items()})
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    data = [path for path in paths if path.parts[0] not in WORKING_FOLDERS]
    local = [written.get(path.as_posix()) or file_entry(folder, folder / path) for path in data]
    files = tuple(sorted([*local, *copied.values()], key=lambda entry: entry.path))
    names = {entry.path for entry in files}
    manifest = Manifest(
        spec=spec,
        data_version=content_version(files, out.facts),
        data_folder=f"data-{uuid.uuid4().hex[:8]}",
        files=files,
        statistics=out.statistics,
        extra={**out.extra, **out.facts},
        resources=use,
        code_fingerprint=code_fingerprint,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        run_id=run_id,
        packages=packages,
        shards={name: ShardRecord(tuple(f), s) for name, (f, s) in finished.items() if f and names.issuperset(f)},
        facts=tuple(sorted(out.facts)),
        omitted=dict(sorted(out.omitted.items())),
        made_by=this_process(),
    )
    data_address = f"{spec.address}/{manifest.data_folder}"
    strong = {entry.path: file_sha256(folder / entry.path) for entry in local} if spec.stage in STRONG_STAGES else {}
    spent = set_aside(folder, data_address)
    store.storage.publish(folder, data_address)
    try:
        store.storage.copy({address: f"{data_address}/{entry.path}" for address, entry in copied.items()})
        manifest = _with_checksums(store, manifest, data_address, copied)
    except FileNotFoundError:  # the writer that was first has deleted what runners had shared
        winner = store.find(spec)
        if winner is None or (replacing is not None and winner.manifest.data_folder == replacing.manifest.data_folder):
            raise
        shutil.rmtree(spent)
        store.storage.delete(data_address)
        return _lost(winner)
    text = to_json(manifest)
    envelope = sign_manifest(store.storage, manifest, text, strong)
    entry = announce(store.storage, manifest, text, replaces=replacing is not None) if store.logged else None
    won = _create(store, manifest, text, replacing)
    shutil.rmtree(spent)
    if won:
        _delete_orphans(store, manifest)
        return manifest
    store.storage.delete(data_address)
    for beside in (entry, envelope):
        if beside is not None:
            store.storage.delete(beside)
    winner = store.find(spec)
    if winner is None:
        raise RuntimeError(f"{spec.name}: another writer's manifest appeared and vanished; materialize it again")
    return _lost(winner)


def _lost(winner: Artifact) -> Manifest:
    log.warning("%s: another writer committed first; its artifact is used", winner.name)
    return winner.manifest


def _with_checksums(store: Store, manifest: Manifest, data_address: str, copied: Mapping[str, FileEntry]) -> Manifest:
    """Add what a bucket lists as checksums of the files: the upload has compared those that were uploaded.

    Raises: ValueError naming a file that was copied within the bucket and has not the size or checksum of its writer's.
    """
    if store.storage.is_local:
        return manifest
    listed = store.storage.listed(data_address)
    for address, entry in copied.items():
        there = listed[entry.path]
        if there.size != entry.bytes or (entry.crc32c and there.crc32c != entry.crc32c):
            has, wrote = (f"{size} bytes, checksum {crc32c}" for size, crc32c in (there[::2], (entry.bytes, entry.crc32c)))
            raise ValueError(changed(store.storage.uri(address), has, wrote))
    sums = {name: facts.crc32c for name, facts in listed.items() if facts.crc32c}
    return replace(manifest, files=tuple(replace(entry, crc32c=sums.get(entry.path)) for entry in manifest.files))


def _create(store: Store, manifest: Manifest, text: str, replacing: Artifact | None) -> bool:
    """Write the manifest unless there is one. Only an artifact that lacks shards or is damaged is replaced, and only by the
    attempt that was started to replace it."""
    where = f"{manifest.spec.address}/{MANIFEST_NAME}"
    there = store.find(manifest.spec) if replacing is not None else None
    if there is None or replacing is None or there.manifest.data_folder != replacing.manifest.data_folder:
        return store.storage.create(where, text)
    if not there.manifest.omitted and damage_of(there) is None:
        raise ValueError(f"{there.name} is complete: it is immutable, delete it before it is made again")
    store.storage.replace(where, text.encode())
    return True


def damage_of(artifact: Artifact) -> str | None:
    """Return what is wrong with an artifact's files, or None. Reads all of them."""
    try:
        artifact.verify()
    except ValueError as error:
        return str(error)
    return None


def _delete_orphans(store: Store, manifest: Manifest) -> None:
    """Delete data folders of writers that were killed before their manifest. A living loser deletes its own.

    Data whose manifest a purge has put into the trash is no orphan: it may be restored.
    """
    names = store.storage.folders(manifest.spec.address)
    for name in names:
        if name.startswith("data-") and name != manifest.data_folder and in_trash(name) not in names:
            store.storage.delete(f"{manifest.spec.address}/{name}")
