"""Sigstore's keyless signatures, on a bundle that others recorded; nothing is asked of a network."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lineage.signing.judge import Judge
from lineage.signing.keyless import MAX_BYTES, Identity
from lineage.signing.keys import LocalKey
from lineage.signing.policy import NamedIdentity, NamedKey, Policy, Role
from lineage.signing.sign import carry_envelope, keyless_address, sign_record
from lineage.storage.root import Storage

pytest.importorskip("sigstore", reason="needs PyPI's sigstore")
RECORDED = Path(__file__).with_name("recorded")
SIGNED, BUNDLE = (RECORDED / "signed.txt").read_bytes(), (RECORDED / "signed.txt.sigstore.json").read_text()
SIGNER = Identity("william@yossarian.net", "https://github.com/login/oauth", is_staging=True)


def test_a_recorded_signature_is_its_signers() -> None:
    assert SIGNER.problem(SIGNED, BUNDLE, "b") is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(SIGNER, name="eve@yossarian.net"), "Certificate's SANs do not match"),
        (replace(SIGNER, issuer="https://accounts.google.com"), "Certificate's OIDCIssuer does not match"),
        (replace(SIGNER, is_staging=False), "b is no signature of"),
    ],
)
def test_another_name_provider_or_instance_is_refused(other: Identity, why: str) -> None:
    assert why in str(other.problem(SIGNED, BUNDLE, "b"))


def test_a_workflow_signed_with_sigstores_own_instance() -> None:
    """All but the bytes is checked before the bytes are: certificate, log and name. The wheel itself is not here; with it the
    signature holds (docs/log.md, 2026-11-26)."""
    bundle = (RECORDED / "rfc8785-0.1.2-py3-none-any.whl.sigstore.json").read_text()
    name = "https://github.com/trailofbits/rfc8785.py/.github/workflows/release.yml@refs/tags/v0.1.2"
    workflow = Identity(name, "https://token.actions.githubusercontent.com")
    assert str(workflow.problem(b"other bytes", bundle, "b")).endswith("Bundle message digest mismatch")
    assert "SANs do not match" in str(replace(workflow, name=name.replace("v0.1.2", "v0.1.3")).problem(b"", bundle, "b"))
    assert "b is no signature of" in str(replace(workflow, is_staging=True).problem(b"", bundle, "b"))


def test_any_changed_byte_of_what_was_signed_is_refused() -> None:
    for at in range(len(SIGNED)):
        changed = SIGNED[:at] + bytes([SIGNED[at] ^ 1]) + SIGNED[at + 1 :]
        assert "b is no signature of" in str(SIGNER.problem(changed, BUNDLE, "b"))


def _entry(record: dict) -> dict:
    return record["verificationMaterial"]["tlogEntries"][0]


EDITS: dict[str, Callable[[dict], object]] = {
    "signature": lambda r: r["messageSignature"].update(signature=r["messageSignature"]["signature"].replace("MEUC", "MEUD")),
    "digest": lambda r: r["messageSignature"]["messageDigest"].update(digest="A" * 43 + "="),
    "certificate": lambda r: r["verificationMaterial"]["certificate"].update(rawBytes="AAAA"),
    "no log entry": lambda r: r["verificationMaterial"].update(tlogEntries=[]),
    "no proof of the log": lambda r: _entry(r).pop("inclusionProof"),
    "root of the log": lambda r: _entry(r)["inclusionProof"].update(rootHash="A" * 43 + "="),
    "path in the log": lambda r: _entry(r)["inclusionProof"]["hashes"].reverse(),
    "place in the log": lambda r: _entry(r)["inclusionProof"].update(logIndex="25901136"),
    "head of the log": lambda r: _entry(r)["inclusionProof"]["checkpoint"].update(envelope="x"),
    "body of the entry": lambda r: _entry(r).update(canonicalizedBody="e30="),
    "time of the entry": lambda r: _entry(r).update(integratedTime="1812085549"),
    "promise of the log": lambda r: _entry(r)["inclusionPromise"].update(signedEntryTimestamp="AAAA"),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_bundle_is_refused(what: str) -> None:
    record = json.loads(BUNDLE)
    EDITS[what](record)
    assert str(SIGNER.problem(SIGNED, json.dumps(record), "the bundle")).startswith("the bundle ")


@pytest.mark.parametrize("text", ["", "{}", "[]", "x", "[" * 100_000, "\ud800", BUNDLE[:-30], " " * (MAX_BYTES + 1)])
def test_what_is_no_bundle_is_named(text: str) -> None:
    assert str(SIGNER.problem(SIGNED, text, "the bundle")).startswith("the bundle ")


TEXT, WHERE = SIGNED.decode(), "waivers/quarantined-1/_/0/manifest.json"


def judged(store: Storage, text: str = TEXT, role: Role = "waive", needed: int = 1, **changes: object) -> str:
    """What a policy says that trusts the recorded signer to waive, and refuses what is not signed."""
    named = NamedIdentity("william", replace(SIGNER, **changes), frozenset({"waive"}))  # type: ignore[arg-type]
    problem = Judge(Policy("test", unsigned="refuse", identities=(named,))).file(store, WHERE, text, role, needed)
    return "" if problem is None else f"{problem.kind}: {problem.detail}"


@pytest.fixture
def signed(tmp_path: Path) -> Storage:
    storage = Storage(str(tmp_path))
    storage.create(keyless_address(WHERE, TEXT, "william"), BUNDLE)
    return storage


def test_a_policy_accepts_a_keyless_signature_for_what_it_allows(signed: Storage) -> None:
    assert judged(signed) == ""


def test_a_policy_refuses_every_other_use_of_it(signed: Storage) -> None:
    """Another role, another text, another name, half of a quorum, another file's bundle, an edited bundle."""
    assert judged(signed, role="judge").startswith("unsigned")
    assert judged(signed, text=TEXT + " ").startswith("unsigned")
    assert "forged: 0 of the 1 signatures" in judged(signed, name="eve@yossarian.net")
    assert "forged: 0 of the 1" in judged(signed, issuer="https://accounts.google.com")
    assert "forged: 1 of the 2" in judged(signed, needed=2)
    signed.create(keyless_address(WHERE, "another text", "william"), BUNDLE)
    assert "forged" in judged(signed, text="another text")
    signed.replace(keyless_address(WHERE, TEXT, "william"), BUNDLE.replace("MEUC", "MEUD", 1).encode())
    assert "forged" in judged(signed)
    signed.replace(keyless_address(WHERE, TEXT, "william"), b"\xff{")
    assert "forged" in judged(signed)


def test_a_key_and_an_identity_are_two_signers(signed: Storage) -> None:
    ada = LocalKey.make()
    sign_record(signed, WHERE, TEXT, "waive", ada)
    named = NamedIdentity("william", SIGNER, frozenset({"waive"}))
    policy = Policy("test", (NamedKey("ada", ada.public, frozenset({"waive"})),), "refuse", identities=(named,))
    assert Judge(policy).file(signed, WHERE, TEXT, "waive", needed=2) is None
    alone = Judge(replace(policy, identities=())).file(signed, WHERE, TEXT, "waive", needed=2)
    assert alone is not None and "1 of the 2" in alone.detail


def test_a_copy_of_a_file_takes_its_keyless_signature_along(signed: Storage, tmp_path: Path) -> None:
    into = Storage(str(tmp_path / "other"))
    carry_envelope(signed, into, WHERE, TEXT)
    assert judged(into) == ""
