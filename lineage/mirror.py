"""Copy an artifact to another root: the same identity, the same manifest to the byte, and a note where it came from.

What was made once must not be made again in another region, and must not lose what is known of it on the way: its verdicts go
along (a copy of a quarantined artifact is quarantined), its ancestors too unless told otherwise, and every byte is held to its
digest before the manifest is written. `<address>/mirrored.json` says from where, by whom, when.

A lease keeps two copiers of one artifact apart, and nothing relies on it: one that stood still for longer writes the same bytes
under the same names as whoever took over, and deletes nothing that a manifest may name.
"""

import datetime
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lineage.digests import text_digest
from lineage.leases import lease
from lineage.manifest import MANIFEST_NAME
from lineage.store import Artifact, Store
from lineage.verdicts import VERDICT_FOLDER

log = logging.getLogger(__name__)

MIRRORED = "mirrored.json"


@dataclass(frozen=True)
class Mirrored:
    """Provenance of a copy: where it was read, the digest of its manifest's text, who copied it and when."""

    source: str
    manifest: str
    who: str
    when: str


@dataclass(frozen=True)
class Copied:
    """What became of one artifact."""

    name: str
    outcome: Literal["copied", "was there"]
    bytes: int


def mirror(artifact: Artifact, into: Store, who: str, *, ancestors: bool = True) -> Iterator[Copied]:
    """Copy an artifact, its ancestors first, so that a copy never lacks one; what is there already is left.

    Raises: ValueError for damaged files, or where the other root has the identity with other bytes; `lineage.leases.HeldError`
    when another mirrors the same artifact.
    """
    family = list(artifact.store.walk_up(artifact)) if ancestors else [artifact]
    for one in _parents_first(family):
        yield _mirror_one(one, into, who)


def provenance(artifact: Artifact) -> Mirrored | None:
    """Where a copy came from; None of what was made where it lies."""
    text = artifact.store.storage.read_text(f"{artifact.spec.address}/{MIRRORED}")
    return None if text is None else Mirrored(**json.loads(text))


def _parents_first(family: list[Artifact]) -> list[Artifact]:
    of = {artifact.spec.address: artifact for artifact in family}
    ordered: dict[str, Artifact] = {}

    def visit(address: str) -> None:
        if address in of and address not in ordered:
            for ref in of[address].spec.inputs:
                visit(ref.address)
            ordered[address] = of[address]

    for address in of:
        visit(address)
    return list(ordered.values())


def _mirror_one(artifact: Artifact, into: Store, who: str) -> Copied:
    size = sum(entry.bytes for entry in artifact.manifest.files)
    with lease(into.storage, f"mirror/{artifact.spec.version}", who) as held:
        _copy_verdicts(artifact, into)
        there = into.find(artifact.spec)
        if there is not None:
            if there.data_version != artifact.data_version:
                raise ValueError(
                    f"{artifact.name} has data version {artifact.data_version} in {artifact.store.root} and "
                    f"{there.data_version} in {into.root}; `./marin reproduce` says which of them this checkout makes"
                )
            return Copied(artifact.name, "was there", size)
        artifact.verify()
        held.check()
        _copy(artifact, into, who)
    log.info("%s: copied to %s", artifact.name, into.root)
    return Copied(artifact.name, "copied", size)


def _copy(artifact: Artifact, into: Store, who: str) -> None:
    """Data, provenance, manifest: the manifest is what makes it exist."""
    address, manifest_name = artifact.spec.address, f"{artifact.spec.address}/{MANIFEST_NAME}"
    text = artifact.store.storage.read_text(manifest_name)
    if text is None:
        raise ValueError(f"{artifact.name} was deleted from {artifact.store.root} while it was copied")
    data = f"{address}/{artifact.manifest.data_folder}"
    _put_data(artifact, into, data)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    note = json.dumps(asdict(Mirrored(artifact.uri, text_digest(text), who, when)), indent=1) + "\n"
    if into.find(artifact.spec) is None:  # else the note is another's
        into.storage.replace(f"{address}/{MIRRORED}", note.encode())
    if into.storage.create(manifest_name, text):
        return
    winner = into.find(artifact.spec)
    if winner is not None and winner.manifest.data_folder == artifact.manifest.data_folder:
        log.warning(
            "%s: another copier of it in %s was first; its note stays, the bytes are the same", artifact.name, into.root
        )
        return
    into.storage.delete(f"{address}/{MIRRORED}")
    into.storage.delete(data)
    log.warning("%s: a writer in %s committed it first; its artifact stays", artifact.name, into.root)


def _put_data(artifact: Artifact, into: Store, data: str) -> None:
    """The files in their place, over what a copier left there that was killed or lost its lease.

    A bucket's objects are replaced one by one by the same bytes. A local folder came there whole, in one rename: one that has
    every file is left, and one that has not is none that a manifest names.
    """
    wanted = {entry.path: entry.bytes for entry in artifact.manifest.files}
    there = into.storage.sizes(data)
    if into.storage.is_local and there == wanted:
        return
    folder = _private_copy(artifact, into)
    try:
        if into.storage.is_local and there and into.storage.sizes(data) == there:
            into.storage.delete(data)
        elif not into.storage.is_local:
            for name in there.keys() - wanted.keys():
                into.storage.delete(f"{data}/{name}")
        into.storage.publish(folder, data)
    except OSError:
        if not into.storage.is_local or into.storage.sizes(data) != wanted:  # else another's rename was first
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # moved, unless it went to a bucket


def _private_copy(artifact: Artifact, into: Store) -> Path:
    """The files in a folder of our own, which may be moved."""
    folder = into.scratch / "mirroring" / uuid.uuid4().hex
    source = artifact.folder()
    for entry in artifact.manifest.files:
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / entry.path, target)
        with target.open("rb") as stream:
            os.fsync(stream.fileno())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy_verdicts(artifact: Artifact, into: Store) -> None:
    for name in artifact.store.storage.find(f"{artifact.spec.address}/{VERDICT_FOLDER}", "verdict.json"):
        data = artifact.store.storage.read_bytes(name)
        if data is not None:
            into.storage.replace(name, data)
