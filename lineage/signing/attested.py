"""Verify an exported folder with nothing but the folder and the publisher's public key (`lineage.signing.bundle` writes it)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, UnsoundManifestError, sound_manifest
from lineage.artifact.spec import InputRef
from lineage.names import check_relative
from lineage.signing.bundle import ATTESTATION, KEYLESS, LOG_FILE, MANIFESTS, digests_of
from lineage.signing.envelope import Envelope, EnvelopeError, read_envelope
from lineage.signing.keyless import Identity
from lineage.signing.keys import PublicKey
from lineage.signing.log import Entry
from lineage.signing.merkle import includes
from lineage.signing.sign import about, envelope_address
from lineage.signing.statement import PUBLISHED, TREE_HEAD, read_statement, text_sha256
from lineage.storage.digests import file_digest


@dataclass(frozen=True)
class Walked:
    """One artifact that the folder's provenance names: what it is, who made it, who signed for it."""

    name: str
    address: str
    stage: str
    made_by: str
    signed_by: tuple[str, ...]
    logged: bool


@dataclass(frozen=True)
class Attested:
    """What an exported folder says of itself, and everything that is wrong with it.

    `publishers`: ids of the known keys, and names of those who signed without a key.
    """

    artifact: str
    publishers: tuple[str, ...]
    claimed: tuple[str, ...]
    """Ids of the keys that the attestation names as its signers, known or not."""
    walked: tuple[Walked, ...]
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.findings


def verify_attested(folder: Path, publishers: Sequence[PublicKey], identities: Sequence[Identity] = ()) -> Attested:
    """Check a folder: the publisher's signature, every byte, every manifest up to the sources, the log's proofs.

    One of `publishers` must have signed, or one of `identities` without a key. What is wrong is a finding; an attestation of
    another kind ends the check, with findings. Without a publisher's signature the makers' keys and all else in the folder
    are only claims, and a finding says so. Raises: EnvelopeError if there is no attestation to read.
    """
    path = folder / ATTESTATION
    if not path.is_file():
        raise EnvelopeError(f"{folder} has no {ATTESTATION}; it was not exported by `./marin export`, or the file was removed")
    envelope = read_envelope(path.read_text(errors="replace"), ATTESTATION)
    record = read_statement(envelope, ATTESTATION)
    claimed = tuple(each.key_id for each in envelope.signatures)
    keyless, refused = _keyless(folder, path.read_bytes(), identities)
    known = (*sorted(envelope.signers(publishers)), *keyless)
    unknown = f"no key that you named has signed {ATTESTATION}; it claims {', '.join(claimed) or 'none'}"
    findings = [] if known else [unknown, *refused]
    if (kind := record.get("predicateType")) != PUBLISHED:
        return Attested("", known, claimed, (), (*findings, f"{ATTESTATION} is {kind}, not {PUBLISHED}"))
    try:
        recorded = record["predicate"]["artifact"]
        name, address, version = str(recorded["name"]), str(recorded["address"]), str(recorded["dataVersion"])
        makers = {PublicKey.from_text(each["public"]): str(each["name"]) for each in record["predicate"]["makers"].values()}
        unsigned = frozenset(record["predicate"]["unsigned"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return Attested("", known, claimed, (), (*findings, f"{ATTESTATION} cannot be read: {error}"))
    try:
        findings += _differences(folder, record)
    except ValueError as error:
        findings.append(str(error))
    findings += _exported_differences(folder, address, {each["name"] for each in record["subject"]})
    proofs = _Proofs.read(folder, publishers, is_attested=bool(keyless))
    findings += proofs.findings
    walked, more = _walk(folder, address, version, makers, unsigned, proofs)
    return Attested(name, known, claimed, tuple(walked), (*findings, *more))


def _keyless(folder: Path, data: bytes, identities: Sequence[Identity]) -> tuple[list[str], list[str]]:
    """Return the names of the identities that have signed the attestation without a key, and why the others have not."""
    if not identities:
        return [], []
    path = folder / KEYLESS
    if not path.is_file():
        return [], [f"there is no {KEYLESS}, so nobody has signed without a key"]
    text = path.read_text(errors="replace")
    problems = {each.name: each.problem(data, text, KEYLESS) for each in identities}
    return [name for name, why in problems.items() if why is None], [why for why in problems.values() if why is not None]


def _differences(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Return files that are missing, changed or not named by the statement."""
    stated = {each["name"]: each["digest"].get("sha256") for each in record["subject"]}
    there = digests_of(folder)
    problems = [f"{name} is missing" for name in sorted(stated.keys() - there.keys())]
    problems += [f"{name} is not named by the attestation" for name in sorted(there.keys() - stated.keys())]
    changed = sorted(name for name in stated.keys() & there.keys() if stated[name] != there[name])
    return problems + [f"{name} has sha256 {there[name]}, the attestation says {stated[name]}" for name in changed]


def _exported_differences(folder: Path, address: str, named: set[str]) -> list[str]:
    """Return how the exported files differ from those of the artifact's manifest."""
    manifest = _manifest(folder, address)
    if isinstance(manifest, str):
        return [manifest]
    problems = []
    for entry in manifest[0].files:
        path = folder / entry.path
        if entry.path not in named or not path.is_file():
            problems.append(f"{entry.path} is a file of {manifest[0].spec.name} and is not in the folder")
        elif file_digest(path) != entry.digest:
            problems.append(f"{entry.path} is not the file that {manifest[0].spec.name} was made with")
    return problems


def _manifest(folder: Path, address: str) -> tuple[Manifest, str] | str:
    """Return the manifest that the folder carries for an address, with its text, or why there is none."""
    try:
        path = folder / MANIFESTS / check_relative(address, "an address") / MANIFEST_NAME
        text = path.read_text(encoding="utf-8")
        return sound_manifest(text, address, str(path)), text
    except OSError:
        return f"the manifest of {address} is missing"
    except UnsoundManifestError as error:
        return f"the manifest of {address} is {error.kind}: {error}"
    except ValueError as error:
        return f"the manifest of {address} cannot be read: {error}"


def _walk(
    folder: Path, address: str, version: str, makers: Mapping[PublicKey, str], unsigned: frozenset, proofs: "_Proofs"
) -> tuple[list[Walked], list[str]]:
    pending, seen, walked, findings = [(address, version)], set(), [], []
    while pending:
        address, version = pending.pop(0)
        if address in seen:
            continue
        seen.add(address)
        read = _manifest(folder, address)
        if isinstance(read, str):
            findings.append(read)
            continue
        manifest, text = read
        if manifest.data_version != version:
            findings.append(f"{address} was read as data version {version}, its manifest says {manifest.data_version}")
        where = f"{address}/{MANIFEST_NAME}"
        try:
            signed = _signers(folder, where, text, makers)
        except (EnvelopeError, UnicodeDecodeError) as error:
            signed = ()
            findings.append(str(error))
        if not signed and address not in unsigned:
            findings.append(f"{address} is signed by no key that the publisher vouches for")
        logged = proofs.has(where, text_sha256(text))
        if where in proofs.proofs and not logged:
            findings.append(f"the log does not have {where} with this text")
        made_by = f"{manifest.made_by.user} on {manifest.made_by.host}, code {manifest.made_by.commit}"
        walked.append(Walked(manifest.spec.name, address, manifest.spec.stage, made_by, signed, logged))
        pending += [_next(ref) for ref in manifest.spec.inputs]
    return walked, findings


def _next(ref: InputRef) -> tuple[str, str]:
    return ref.address, ref.data_version


def _signers(folder: Path, where: str, text: str, makers: Mapping[PublicKey, str]) -> tuple[str, ...]:
    path = folder / MANIFESTS / envelope_address(where, text)
    if not path.is_file():
        return ()
    envelope = about(read_envelope(path.read_text(encoding="utf-8"), str(path)), where, text)
    ids = envelope.signers(list(makers))
    return tuple(sorted(name for key, name in makers.items() if key.key_id in ids))


@dataclass(frozen=True)
class _Proofs:
    """The log's part of a folder: root and size of the signed head, and a proof for each manifest."""

    size: int
    root: bytes
    proofs: Mapping[str, Mapping[str, Any]]
    findings: tuple[str, ...] = ()

    @staticmethod
    def read(folder: Path, publishers: Sequence[PublicKey], *, is_attested: bool) -> "_Proofs":
        """Read `log.json`; a folder of a lab that keeps no log has none.

        `is_attested`: whether a publisher without a key vouches for every file, and so for the head in this one.
        """
        path = folder / LOG_FILE
        if not path.is_file():
            return _Proofs(0, b"", {})
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            envelope: Envelope = read_envelope(json.dumps(content["head"]), LOG_FILE)
            record = read_statement(envelope, LOG_FILE)
            size, root = int(record["predicate"]["size"]), bytes.fromhex(record["predicate"]["root"])
            proofs = dict(content["proofs"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return _Proofs(0, b"", {}, (f"{LOG_FILE} cannot be read: {error}",))
        if record["predicateType"] != TREE_HEAD or not (is_attested or envelope.signers(publishers)):
            return _Proofs(0, b"", {}, (f"the head in {LOG_FILE} is signed by no key that you named",))
        return _Proofs(size, root, proofs)

    def has(self, name: str, sha256: str) -> bool:
        """Whether the log's tree has this file with this text."""
        recorded = self.proofs.get(name)
        if recorded is None:
            return False
        try:
            proof = [bytes.fromhex(each) for each in recorded["proof"]]
            return includes(Entry(name, sha256).leaf, int(recorded["index"]), self.size, proof, self.root)
        except (KeyError, ValueError, TypeError):
            return False
