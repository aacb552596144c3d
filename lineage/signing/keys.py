"""Signing keys. Ed25519 by default; a private key is a PEM file that only its owner may read, outside every store.

The variable `MARIN_SIGNING_KEY` says with what a process signs:

- absent: the key `local.pem` of the key folder, which is made on first use;
- a path: that PEM file (a mounted Secret);
- `gcpkms:...`, `awskms:...`, `azurekms:...`, `hv:...`, `file2:...`: a key that another program holds, by PyPI's
  securesystemslib; the variable `MARIN_SIGNING_PUBLIC_KEY` is the PEM file of its public half;
- `off`: nothing is signed.

The key folder is `.marin/keys` of the lab, or `MARIN_KEYS`.
"""

import base64
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from lineage.private_files import key_folder, make_private

log = logging.getLogger(__name__)

SIGNING_KEY = "MARIN_SIGNING_KEY"
PUBLIC_KEY = "MARIN_SIGNING_PUBLIC_KEY"
OFF = "off"
LOCAL_KEY = "local.pem"
_HELD_ELSEWHERE = ("gcpkms:", "awskms:", "azurekms:", "hv:", "file2:")


@dataclass(frozen=True)
class PublicKey:
    """A public key that verifies: Ed25519, or ECDSA with SHA-256 (what some key services offer). `der` is its SPKI form."""

    der: bytes

    def __post_init__(self) -> None:
        key = load_der_public_key(self.der)
        if not isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey):
            raise ValueError(f"a public key is {type(key).__name__}; allowed: Ed25519, ECDSA")

    @staticmethod
    def from_pem(text: str) -> "PublicKey":
        """Read a PEM file's text. Raises: ValueError for what is no public key of an allowed kind."""
        key = load_pem_public_key(text.encode())
        return PublicKey(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    @staticmethod
    def from_text(text: str) -> "PublicKey":
        """Read the one-line form, which `./marin key` prints: base64 of the SPKI form."""
        return PublicKey(base64.b64decode(text, validate=True))

    @property
    def text(self) -> str:
        return base64.b64encode(self.der).decode()

    @property
    def pem(self) -> str:
        key = load_der_public_key(self.der)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @property
    def key_id(self) -> str:
        """sha256 of the SPKI form, 64 hex characters."""
        return hashlib.sha256(self.der).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature of these bytes is this key's."""
        key = load_der_public_key(self.der)
        try:
            if isinstance(key, Ed25519PublicKey):
                key.verify(signature, message)
            elif isinstance(key, EllipticCurvePublicKey):
                key.verify(signature, message, ECDSA(SHA256()))
            else:
                return False
        except InvalidSignature:
            return False
        return True


class Signer(Protocol):
    """What signs: it knows its public half."""

    @property
    def public(self) -> PublicKey: ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature of some bytes."""


@dataclass(frozen=True)
class LocalKey:
    """An Ed25519 private key in this process. `seed` never leaves it except into its own file."""

    seed: bytes

    @staticmethod
    def make() -> "LocalKey":
        return LocalKey(Ed25519PrivateKey.generate().private_bytes_raw())

    @staticmethod
    def read(path: Path) -> "LocalKey":
        """Read a PEM file (PKCS 8, not encrypted).

        Raises: ValueError naming a file that others may read, or that holds another kind of key.
        """
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.getuid():
            raise ValueError(f"the signing key {path} may be read by others (mode {path.stat().st_mode & 0o777:o}); chmod 600")
        key = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"the signing key {path} is {type(key).__name__}; allowed: Ed25519")
        return LocalKey(key.private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key()
        return PublicKey(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    @property
    def pem(self) -> bytes:
        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, message: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)

    def __repr__(self) -> str:  # a log must not show the seed
        return f"LocalKey({self.public.key_id[:16]})"


@dataclass(frozen=True)
class HeldKey:
    """A key that a key service or another program holds, addressed by a URI of securesystemslib."""

    uri: str
    public: PublicKey

    def sign(self, message: bytes) -> bytes:
        """Ask the holder. Raises: ModuleNotFoundError without securesystemslib, else whatever the service answers."""
        from securesystemslib.signer import Signer, SSlibKey  # optional: only who has such a key

        key = SSlibKey.from_crypto(load_der_public_key(self.public.der), keyid=self.public.key_id)
        return bytes.fromhex(Signer.from_priv_key_uri(self.uri, key).sign(message).signature)


def local_key(folder: Path) -> LocalKey:
    """Return the local key of a folder; it is made on first use (mode 0600). Of two processes that make it one wins."""
    path = folder / LOCAL_KEY
    if make_private(path, lambda: LocalKey.make().pem):
        log.info("%s: a signing key was made; %s is its id", path, LocalKey.read(path).public.key_id)
    return LocalKey.read(path)


def signer_from(environment: Mapping[str, str]) -> Signer | None:
    """Return what a process signs with; None where the environment says `off`, or where no local key can be made.

    Raises: ValueError or OSError for a key that is named and cannot be used.
    """
    named = environment.get(SIGNING_KEY, "")
    if named == OFF:
        return None
    if named.startswith(_HELD_ELSEWHERE):
        public = environment.get(PUBLIC_KEY, "")
        if not public:
            raise ValueError(f"{SIGNING_KEY} is {named!r}; {PUBLIC_KEY} must name the PEM file of its public half")
        return HeldKey(named, PublicKey.from_pem(Path(public).read_text()))
    return LocalKey.read(Path(named)) if named else _default_key(key_folder(environment))


@cache
def _default_key(folder: Path) -> LocalKey | None:
    """Cached: a file's read and a key's check are half a millisecond for each of thousands of small artifacts."""
    try:
        return local_key(folder)
    except OSError as error:  # a read-only image without a key: policy, not this process, says whether that is allowed
        log.warning("nothing is signed: no local key can be made in %s (%s); set %s", folder, error, SIGNING_KEY)
        return None
