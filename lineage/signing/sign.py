"""Write signatures beside what they sign, and read them back.

A signature of the file `<folder>/<name>` with some text is `<folder>/signatures/<sha256 of the text>.json`. It is written
before the file, so no file that must be signed appears without one; a killed writer leaves an envelope that belongs to nothing.
Names go by content, so of two writers of one file each has an envelope of its own. A keyless signature over the same text is
`<folder>/signatures/<sha256 of the text>.<name>.sigstore.json`, where the policy calls that identity so.
"""

import os
from collections.abc import Mapping

from lineage.artifact.manifest import MANIFEST_NAME, Manifest
from lineage.signing.envelope import Envelope, EnvelopeError, read_envelope
from lineage.signing.keyless import SUFFIX
from lineage.signing.keys import Signer, signer_from
from lineage.signing.statement import digest_of, manifest_statement, read_statement, record_statement, text_sha256
from lineage.storage.files import Reads
from lineage.storage.root import Storage

SIGNATURES = "signatures"
COUNTERSIGN_TRIES = 20


def envelope_address(where: str, text: str) -> str:
    """Return the address of the envelope for a file at `where` that has this text."""
    folder, _, _ = where.rpartition("/")
    return f"{folder}/{SIGNATURES}/{text_sha256(text)}.json"


def keyless_address(where: str, text: str, name: str) -> str:
    """Return the address of a keyless signature, of the identity that the policy calls `name`, over a file with this text."""
    return envelope_address(where, text).removesuffix(".json") + f".{name}{SUFFIX}"


def sign_manifest(
    storage: Storage, manifest: Manifest, text: str, sha256: Mapping[str, str] | None = None, signer: Signer | None = None
) -> str | None:
    """Sign a manifest that is about to be written. Returns the envelope's address, or None where nothing signs.

    `signer`: default what the environment names (`lineage.signing.keys`).
    """
    where = f"{manifest.spec.address}/{MANIFEST_NAME}"
    return _write(storage, where, text, manifest_statement(manifest, text, sha256), signer)


def sign_record(storage: Storage, where: str, text: str, role: str, signer: Signer | None = None) -> str | None:
    """Sign a record that is about to be written, as `sign_manifest` does. `role`: what the signer does, such as `judge`."""
    return _write(storage, where, text, record_statement(where, text, role), signer)


def _write(storage: Storage, where: str, text: str, unsigned: Envelope, signer: Signer | None) -> str | None:
    signer = signer or signer_from(os.environ)
    if signer is None:
        return None
    address = envelope_address(where, text)
    if not storage.create(address, unsigned.signed_by(signer).to_json()):
        countersign(storage, where, text, signer)
    return address


def countersign(storage: Storage, where: str, text: str, signer: Signer) -> Envelope:
    """Add a signature to the envelope of a file; signatures that others add at the same time are kept.

    Raises: EnvelopeError if there is no envelope, or if it is about something else; RuntimeError if others never stop writing.
    """
    address = envelope_address(where, text)
    for _ in range(COUNTERSIGN_TRIES):
        existing = storage.files.read_versioned(address)
        if existing is None:
            raise EnvelopeError(f"{where} has no signature to add to; sign it first: ./marin sign")
        envelope = about(read_envelope(existing.data.decode(errors="replace"), address), where, text)
        signed = envelope.signed_by(signer)
        if storage.files.swap(address, signed.to_json().encode(), existing.generation) is not None:
            return signed
    raise RuntimeError(f"{address} was changed by others {COUNTERSIGN_TRIES} times while a signature was added; try again")


def carry_envelope(origin: Storage, into: Storage, where: str, text: str) -> None:
    """Copy every signature of a file with this text to another root that is about to get the file."""
    folder, _, start = envelope_address(where, text).removesuffix(".json").rpartition("/")
    for name in origin.records(folder):
        data = origin.read_bytes(f"{folder}/{name}") if name.startswith(f"{start}.") else None
        if data is not None:
            into.create(f"{folder}/{name}", data.decode(errors="replace"))


def find_envelope(storage: Reads, where: str, text: str) -> Envelope | None:
    """Return the envelope of a file with this text, or None. Its signatures are not yet verified.

    Raises: EnvelopeError if what lies there is no statement about this file and text.
    """
    address = envelope_address(where, text)
    data = storage.read_bytes(address)
    return None if data is None else about(read_envelope(data.decode(errors="replace"), address), where, text)


def about(envelope: Envelope, where: str, text: str) -> Envelope:
    """Return an envelope that states the sha256 of this file. Raises: EnvelopeError for one about something else."""
    stated = digest_of(read_statement(envelope, f"the signature of {where}"), where)
    if stated != text_sha256(text):
        raise EnvelopeError(f"the signature of {where} is about sha256 {stated}, the file has {text_sha256(text)}")
    return envelope
