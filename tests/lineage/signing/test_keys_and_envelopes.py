"""Keys and envelopes: made once, private, read by others' libraries; every changed byte is refused."""

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from hypothesis import given
from hypothesis import strategies as st
from in_toto_reader import validate
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from lineage.signing.envelope import Envelope, EnvelopeError, read_envelope
from lineage.signing.keys import SIGNING_KEY, LocalKey, PublicKey, local_key, signer_from
from lineage.signing.statement import read_statement, record_statement

ADA = LocalKey(b"a" * 32)
EVE = LocalKey(b"e" * 32)


def their_key(public: PublicKey) -> SSlibKey:
    return SSlibKey.from_crypto(load_der_public_key(public.der), keyid=public.key_id)


def test_a_local_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: local_key(tmp_path / "keys").public, range(16)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["local.pem"]
    assert (tmp_path / "keys" / "local.pem").stat().st_mode & 0o777 == 0o600
    assert repr(ADA.seed) not in repr(ADA) and "a" * 32 not in repr(ADA)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    local_key(tmp_path)
    (tmp_path / "local.pem").chmod(0o644)
    with pytest.raises(ValueError, match="may be read by others"):
        signer_from({SIGNING_KEY: str(tmp_path / "local.pem")})


def test_the_environment_says_with_what_a_process_signs(tmp_path: Path) -> None:
    key = local_key(tmp_path)
    named = signer_from({SIGNING_KEY: str(tmp_path / "local.pem")})
    assert named is not None and named.public == key.public
    assert signer_from({SIGNING_KEY: "off"}) is None
    with pytest.raises(FileNotFoundError):
        signer_from({SIGNING_KEY: str(tmp_path / "absent.pem")})
    with pytest.raises(ValueError, match="MARIN_SIGNING_PUBLIC_KEY must name"):
        signer_from({SIGNING_KEY: "gcpkms:projects/x"})


def test_a_key_that_another_program_holds_signs_by_its_uri(tmp_path: Path) -> None:
    """The seam of key services, with the URI scheme of securesystemslib that needs no service."""
    theirs = CryptoSigner.generate_ed25519()
    (tmp_path / "private.pem").write_bytes(theirs.private_bytes)
    (tmp_path / "private.pem").chmod(0o600)
    public = LocalKey.read(tmp_path / "private.pem").public
    assert PublicKey.from_pem(public.pem) == public == PublicKey.from_text(public.text)
    (tmp_path / "public.pem").write_text(public.pem)
    signer = signer_from(
        {SIGNING_KEY: f"file2:{tmp_path / 'private.pem'}", "MARIN_SIGNING_PUBLIC_KEY": str(tmp_path / "public.pem")}
    )
    assert signer is not None
    envelope = record_statement("verdict.json", "text", "judge").signed_by(signer)
    assert envelope.signers([public, ADA.public]) == {public.key_id}


def test_their_library_accepts_ours_and_refuses_every_changed_byte() -> None:
    envelope = record_statement("verdict.json", "text", "judge").signed_by(ADA)
    record = json.loads(envelope.to_json())
    theirs = TheirEnvelope.from_dict(json.loads(envelope.to_json()))
    assert theirs.verify([their_key(ADA.public)], 1)
    with pytest.raises(VerificationError):
        theirs.verify([their_key(EVE.public)], 1)
    for at in range(0, len(envelope.payload), 7):
        changed = bytearray(envelope.payload)
        changed[at] ^= 1
        other = TheirEnvelope.from_dict(json.loads(json.dumps(record | {"payload": base64.b64encode(bytes(changed)).decode()})))
        with pytest.raises(VerificationError):
            other.verify([their_key(ADA.public)], 1)
        ours = Envelope(bytes(changed), envelope.payload_type, envelope.signatures)
        assert not ours.signers([ADA.public])


def test_what_their_library_signs_ours_reads(tmp_path: Path) -> None:
    signer = CryptoSigner.generate_ed25519()
    theirs = TheirEnvelope(b"payload", "text/plain", {})
    theirs.sign(signer)
    ours = read_envelope(json.dumps(theirs.to_dict()), "theirs")
    (tmp_path / "key.pem").write_bytes(signer.private_bytes)
    (tmp_path / "key.pem").chmod(0o600)
    public = LocalKey.read(tmp_path / "key.pem").public
    assert ours.signers([public]) == {public.key_id} and ours.payload == b"payload"


def test_an_ecdsa_key_of_a_key_service_verifies() -> None:
    private = generate_private_key(SECP256R1())
    public = PublicKey(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    signature = private.sign(b"message", ECDSA(SHA256()))
    assert public.verifies(signature, b"message") and not public.verifies(signature, b"massage")


def test_in_toto_accepts_the_statement() -> None:
    record = read_statement(record_statement("verdict.json", "text", "judge"), "here")
    validate(record)


def test_a_signature_is_of_one_type() -> None:
    signed = Envelope(b"payload", "text/a").signed_by(ADA)
    assert Envelope(b"payload", "text/a", signed.signatures).signers([ADA.public])
    assert not Envelope(b"payload", "text/b", signed.signatures).signers([ADA.public])


def test_one_key_counts_once_whatever_the_hints_say() -> None:
    signed = Envelope(b"payload", "text/a").signed_by(ADA)
    (one,) = signed.signatures
    forged = Envelope(b"payload", "text/a", (one, type(one)(EVE.public.key_id, one.value)))
    assert forged.signers([ADA.public, EVE.public]) == {ADA.public.key_id}


@given(st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_no_text_raises_anything_but_an_envelope_error(text: str) -> None:
    try:
        read_statement(read_envelope(text, "fuzz"), "fuzz")
    except EnvelopeError:
        return
    raise AssertionError(f"{text!r} was read as an envelope")


def test_deep_brackets_are_no_envelope() -> None:
    with pytest.raises(EnvelopeError):
        read_envelope("[" * 100_000, "it")


def test_reading_signatures_needs_no_jax_and_no_dagster() -> None:
    """A stranger verifies with little; jobs pay for imports."""
    code = "import sys, lineage.signing.judge; print([m for m in ('jax', 'dagster', 'securesystemslib') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert ended.stdout.strip() == "[]"
