"""Provenance that an exported folder carries: the manifests above it with their signatures, and one statement over all files.

    <folder>/...                                       the exported files and whatever describes them
    <folder>/provenance/attestation.json               envelope: sha256 of every other file, who vouches, the log's head
    <folder>/provenance/manifests/<address>/...        `manifest.json` and its envelope, of the artifact and every ancestor
    <folder>/provenance/log.json                       signed tree head and a proof for every manifest, where a log is kept

One key has to be known to a reader, that of the publisher. The publisher's statement names the keys of those who made the
ancestors, so these need not be known.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lineage.artifact.manifest import MANIFEST_NAME, Manifest
from lineage.artifact.store import Artifact
from lineage.signing.envelope import read_envelope
from lineage.signing.keyless import SUFFIX
from lineage.signing.keys import Signer
from lineage.signing.log import LogView, head_statement
from lineage.signing.merkle import inclusion_proof
from lineage.signing.policy import Policy
from lineage.signing.sign import SIGNATURES, envelope_address
from lineage.signing.statement import PUBLISHED, statement
from lineage.storage.digests import file_sha256

PROVENANCE_FOLDER = "provenance"
ATTESTATION = f"{PROVENANCE_FOLDER}/attestation.json"
KEYLESS = f"{ATTESTATION}{SUFFIX}"
"""The bundle of a keyless signature over the attestation, where the publisher made one."""
LOG_FILE = f"{PROVENANCE_FOLDER}/log.json"
MANIFESTS = f"{PROVENANCE_FOLDER}/manifests"


def write_manifests(folder: Path, artifact: Artifact) -> tuple[list[Manifest], list[str]]:
    """Write the manifests of an artifact and its ancestors, with their envelopes.

    Returns the manifests, nearest first, and the addresses of those without a signature.
    Raises: ValueError if an ancestor is gone or has other bytes.
    """
    storage, unsigned, manifests = artifact.store.storage, [], []
    for one in artifact.store.walk_up(artifact):
        where = f"{one.spec.address}/{MANIFEST_NAME}"
        text = storage.read_text(where)
        if text is None:
            raise ValueError(f"{one.name} was deleted from {artifact.store.root} while it was exported")
        _write(folder / MANIFESTS / where, text)
        envelope = storage.read_text(envelope_address(where, text))
        if envelope is None:
            unsigned.append(one.spec.address)
        else:
            _write(folder / MANIFESTS / envelope_address(where, text), envelope)
        manifests.append(one.manifest)
    return manifests, unsigned


def write_log(folder: Path, view: LogView, manifests: Iterable[Manifest], signer: Signer) -> list[str]:
    """Write the head of a log and an inclusion proof of every manifest. Returns the addresses that the log lacks so far."""
    proofs: dict[str, Any] = {}
    absent = []
    last = {entry.name: index for index, entry in enumerate(view.entries)}
    for manifest in manifests:
        name = f"{manifest.spec.address}/{MANIFEST_NAME}"
        if name not in last:
            absent.append(manifest.spec.address)
            continue
        proof = inclusion_proof(view.leaves, last[name])
        proofs[name] = {"index": last[name], "proof": [each.hex() for each in proof]}
    head = json.loads(head_statement(view.head).signed_by(signer).to_json())
    _write(folder / LOG_FILE, json.dumps({"head": head, "proofs": proofs}, indent=1) + "\n")
    return absent


def attest(folder: Path, artifact: Artifact, signer: Signer, policy: Policy, unsigned: Iterable[str]) -> None:
    """Sign a finished folder: every file in it, the artifact it holds, and the keys of the makers. The last file written.

    Raises: ValueError for a folder with a link, which would say something else elsewhere.
    """
    subjects = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests_of(folder).items())]
    envelopes = (folder / MANIFESTS).rglob(f"{SIGNATURES}/*.json")
    used = {each.key_id for path in envelopes for each in read_envelope(path.read_text(), str(path)).signatures}
    makers = {key.public.key_id: key for key in policy.keys if key.may & {"make", "waive"} and key.public.key_id in used}
    predicate: Mapping[str, Any] = {
        "artifact": {"name": artifact.name, "address": artifact.spec.address, "dataVersion": artifact.data_version},
        "makers": {key_id: {"name": key.name, "public": key.public.text} for key_id, key in sorted(makers.items())},
        "unsigned": sorted(unsigned),
        "policy": policy.source if "/" not in policy.source else policy.source.rpartition("/")[2],
    }
    _write(folder / ATTESTATION, statement(subjects, PUBLISHED, predicate).signed_by(signer).to_json())


def digests_of(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder but its attestation and the signature of that, by path.

    Raises: ValueError for a link.
    """
    entries = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            if path.is_symlink():
                raise ValueError(f"{path} is a link; an exported folder holds its files themselves")
        for name in files:
            path = Path(at, name)
            relative = path.relative_to(folder).as_posix()
            if relative not in (ATTESTATION, KEYLESS):
                entries[relative] = file_sha256(path)
    return entries


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
