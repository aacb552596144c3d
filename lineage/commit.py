"""The commit of an artifact: its data, then its manifest, then the end of what dead attempts left."""

import datetime
import logging
import shutil
import uuid
from collections.abc import Mapping

from lineage.file_entries import file_entry
from lineage.manifest import MANIFEST_NAME, Manifest, ResourceUse, ShardRecord, content_version, to_json
from lineage.shards import ShardFolder
from lineage.store import Artifact, Store
from lineage.working_folder import WORKING_FOLDERS, set_aside
from lineage.writer import Writer

log = logging.getLogger(__name__)


def commit(
    out: Writer,
    use: ResourceUse,
    code_fingerprint: str,
    run_id: str,
    packages: Mapping[str, str],
    replacing: Artifact | None,
) -> Manifest:
    """Make an attempt's folder an artifact; the manifest that stands now, another writer's where it was first.

    Raises: ValueError for a whole artifact that was to be replaced; RuntimeError when the winner vanished again.
    """
    store, spec, folder = out.store, out.spec, out.folder
    finished, written = ShardFolder(folder).records(out.shard_names), ShardFolder(folder).written(out.shard_names)
    found = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    data = [path for path in found if path.parts[0] not in WORKING_FOLDERS]
    local = [written.get(path.as_posix()) or file_entry(folder, folder / path) for path in data]
    files = tuple(sorted([*local, *out.elsewhere.values()], key=lambda entry: entry.path))
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
    )
    data_address = f"{spec.address}/{manifest.data_folder}"
    spent = set_aside(folder, data_address)
    store.storage.publish(folder, data_address)
    store.storage.copy({address: f"{data_address}/{entry.path}" for address, entry in out.elsewhere.items()})
    won = _create(store, manifest, replacing)
    shutil.rmtree(spent)
    if won:
        _delete_orphans(store, manifest)
        return manifest
    store.storage.delete(data_address)
    winner = store.find(spec)
    if winner is None:
        raise RuntimeError(f"{spec.name}: another writer's manifest appeared and vanished; materialize it again")
    log.warning("%s: another writer committed first; its artifact is used", spec.name)
    return winner.manifest


def _create(store: Store, manifest: Manifest, replacing: Artifact | None) -> bool:
    """Write the manifest, unless there is one; one that lacks shards or is damaged gives way, to the attempt that knows it."""
    where = f"{manifest.spec.address}/{MANIFEST_NAME}"
    there = store.find(manifest.spec) if replacing is not None else None
    if there is None or replacing is None or there.manifest.data_folder != replacing.manifest.data_folder:
        return store.storage.create(where, to_json(manifest))
    if not there.manifest.omitted and damage_of(there) is None:
        raise ValueError(f"{there.name} is complete: it is immutable, delete it before it is made again")
    store.storage.replace(where, to_json(manifest).encode())
    return True


def damage_of(artifact: Artifact) -> str | None:
    """What is wrong with an artifact's files, None where they are what its manifest says. Reads all of them."""
    try:
        artifact.verify()
    except ValueError as error:
        return str(error)
    return None


def _delete_orphans(store: Store, manifest: Manifest) -> None:
    """Data that a writer killed between its data and its manifest left; a living loser deletes its own anyway."""
    for name in store.storage.folders(manifest.spec.address):
        if name.startswith("data-") and name != manifest.data_folder:
            store.storage.delete(f"{manifest.spec.address}/{name}")
