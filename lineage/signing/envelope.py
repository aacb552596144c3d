"""DSSE envelopes: some bytes, their type, and signatures over both.

The form is that of https://github.com/secure-systems-lab/dsse (version 1), which `cosign`, `in-toto` and PyPI's
`securesystemslib` read. Signatures cover the type and its length, so bytes of one type cannot pass as another's.
"""

import base64
import binascii
import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from lineage.signing.keys import PublicKey, Signer

IN_TOTO = "application/vnd.in-toto+json"
MAX_BYTES = 64 << 20
MAX_SIGNATURES = 64


class EnvelopeError(ValueError):
    """Some text is no DSSE envelope."""


@dataclass(frozen=True)
class Signature:
    """One signature. `key_id` is a hint about the key, never a proof."""

    key_id: str
    value: bytes


@dataclass(frozen=True)
class Envelope:
    """A payload of some type, with its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...] = ()

    @property
    def message(self) -> bytes:
        """The bytes that are signed (pre-authentication encoding, PAE)."""
        kind = self.payload_type.encode()
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)

    def signed_by(self, signer: Signer) -> "Envelope":
        """Return the envelope with one more signature, in place of an earlier one of the same key."""
        key_id = signer.public.key_id
        others = tuple(each for each in self.signatures if each.key_id != key_id)
        return replace(self, signatures=(*others, Signature(key_id, signer.sign(self.message))))

    def signers(self, keys: Collection[PublicKey]) -> set[str]:
        """Return the ids of those keys that have signed. Each key counts once, whatever the hints say."""
        message, values = self.message, {each.value for each in self.signatures}
        return {key.key_id for key in keys if any(key.verifies(value, message) for value in values)}

    def to_json(self) -> str:
        record = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": each.key_id, "sig": base64.b64encode(each.value).decode()} for each in self.signatures],
        }
        return json.dumps(record, indent=1) + "\n"


def read_envelope(text: str, where: str) -> Envelope:
    """Read an envelope. Nothing in it is trusted before `signers` has named a key. Raises: EnvelopeError naming `where`."""
    if len(text) > MAX_BYTES:
        raise EnvelopeError(f"{where}: an envelope of {len(text)} characters; at most {MAX_BYTES} are read")
    try:
        record = json.loads(text)
        signatures = [Signature(str(each.get("keyid", "")), _decoded(each["sig"])) for each in record["signatures"]]
        envelope = Envelope(_decoded(record["payload"]), str(record["payloadType"]), tuple(signatures))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EnvelopeError(f"{where} is no DSSE envelope: {type(error).__name__}: {error}") from error
    if len(signatures) > MAX_SIGNATURES:
        raise EnvelopeError(f"{where} has {len(signatures)} signatures; at most {MAX_SIGNATURES} are read")
    return envelope


def _decoded(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} instead of base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
