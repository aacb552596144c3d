"""Copy an artifact to another root: the same identity, the same manifest to the byte, and a note about its origin.

Verdicts are copied too (a copy of a quarantined artifact is quarantined), and ancestors by default. Every file is compared with
its digest before the manifest is written. `<address>/mirrored.json` says from where, by whom and when.

A lease separates two copiers of one artifact, but correctness does not depend on it: a copier that paused for longer writes
the same bytes under the same names as its successor, and deletes nothing that a manifest may name.
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

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.commit_log.entries import announce
from lineage.signing.sign import carry_envelope
from lineage.storage.digests import text_digest
from lineage.storage.leases import lease
from lineage.trust.gate import MIRRORED
from lineage.trust.verdict_log import append, read_log
from lineage.trust.verdicts import subject_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mirrored:
    """Origin of a copy: its source, the digest of its manifest's text, who copied it and when."""

    source: str
    manifest: str
    who: str
    when: str


@dataclass(frozen=True)
class Copied:
    """The outcome of one artifact."""

    name: str
    outcome: Literal["copied", "was there"]
    bytes: int


def mirror(
    artifact: Artifact, into: Store, who: str, *, ancestors: bool = True, expected: str | None = None
) -> Iterator[Copied]:
    """Copy an artifact, its ancestors first, so that no copy lacks one. Artifacts that exist already are skipped.

    `expected` is the data version that its owner has published. Inputs are held to the data versions that the artifact
    names. With it, files of copies that exist already are read again too.
    Raises: ValueError for another data version than expected, before anything is copied; for damaged files, or if the other
    root has the identity with other bytes; `lineage.storage.leases.HeldError` if another process copies the same artifact.
    """
    if expected is not None and artifact.data_version != expected:
        raise ValueError(
            f"{artifact.uri} has data version {artifact.data_version}, expected is {expected}; nothing was copied. Ask its "
            "owner which one is published: `./marin show` prints it"
        )
    family = list(artifact.store.walk_up(artifact)) if ancestors else [artifact]
    for one in _parents_first(family):
        yield _mirror_one(one, into, who, verify_present=expected is not None)


def provenance(artifact: Artifact) -> Mirrored | None:
    """Return the origin of a copy, or None for an artifact that was made in its store."""
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


def _mirror_one(artifact: Artifact, into: Store, who: str, *, verify_present: bool) -> Copied:
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
            if verify_present:
                there.verify()
            return Copied(artifact.name, "was there", size)
        artifact.verify()
        held.check()
        _copy(artifact, into, who)
    log.info("%s: copied to %s", artifact.name, into.root)
    return Copied(artifact.name, "copied", size)


def _copy(artifact: Artifact, into: Store, who: str) -> None:
    """Write data, origin and manifest, in this order: the manifest makes the artifact exist."""
    address, manifest_name = artifact.spec.address, f"{artifact.spec.address}/{MANIFEST_NAME}"
    text = artifact.store.storage.read_text(manifest_name)
    if text is None:
        raise ValueError(f"{artifact.name} was deleted from {artifact.store.root} while it was copied")
    data = f"{address}/{artifact.manifest.data_folder}"
    _put_data(artifact, into, data)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    note = json.dumps(asdict(Mirrored(artifact.uri, text_digest(text), who, when)), indent=1) + "\n"
    if into.find(artifact.spec) is None:  # else the note belongs to another copier
        into.storage.replace(f"{address}/{MIRRORED}", note.encode())
    carry_envelope(artifact.store.storage, into.storage, manifest_name, text)
    announce(into.storage, artifact.manifest, text)
    if into.storage.create(manifest_name, text):
        return
    winner = into.find(artifact.spec)
    if winner is not None and winner.manifest.data_folder == artifact.manifest.data_folder:
        log.warning("%s: another copier in %s was first; its note is kept, the bytes are the same", artifact.name, into.root)
        return
    into.storage.delete(f"{address}/{MIRRORED}")
    into.storage.delete(data)
    log.warning("%s: a writer in %s committed it first; its artifact is kept", artifact.name, into.root)


def _put_data(artifact: Artifact, into: Store, data: str) -> None:
    """Put the files in their place, over what a killed copier, or one that lost its lease, left there.

    Objects of a bucket are replaced one by one by the same bytes. A local folder appears whole, in one rename: a folder with
    every file is kept; a folder without is named by no manifest and is replaced.
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
        if not into.storage.is_local or into.storage.sizes(data) != wanted:  # else another copier's rename was first
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # gone if it was moved; left if it was copied to a bucket


def _private_copy(artifact: Artifact, into: Store) -> Path:
    """Copy the files to a private folder that may be moved."""
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
    """Append the verdicts that the other root's log lacks. Raises: ValueError for a fault of the log about these bytes."""
    subject = subject_of(artifact)
    log = read_log(artifact.store)
    theirs = [record.verdict for record in read_log(into).records if record.subject == subject]
    for fault in log.faults:
        if fault.is_about(subject):
            raise ValueError(f"{artifact.name}: {fault.detail} in {artifact.store.root}: `./marin verdicts` says what to do")
    for verdict in log.of(subject):
        if verdict not in theirs:
            append(into, subject, verdict)
