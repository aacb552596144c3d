"""Artifacts are signed as they are committed, and a policy says whose signature counts."""

import datetime
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from in_toto_reader import validate
from signed_store import WORDS, Words, envelope_path, made, named, strict, text_of

from lineage.artifact.manifest import MANIFEST_NAME, sealed
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.build.waiver_stage import waive
from lineage.private_files import KEY_FOLDER
from lineage.signing.envelope import EnvelopeError, read_envelope
from lineage.signing.judge import Judge
from lineage.signing.keyless import Identity
from lineage.signing.keys import LocalKey, local_key
from lineage.signing.log import ENTRIES, HEADS, LogError, LogView, append, head_name, read_log, verdict_records
from lineage.signing.merkle import includes, inclusion_proof
from lineage.signing.policy import NamedIdentity, Policy, default_policy, policy_from, read_policy
from lineage.signing.sign import countersign, envelope_address, keyless_address, sign_record
from lineage.signing.statement import digest_of, read_statement, text_sha256
from lineage.storage.root import Storage
from lineage.trust.gate import GateError, check_launch, inspect
from lineage.trust.verdicts import quarantine
from lineage.trust.waivers import Waiver
from lineage.upkeep.mirror import mirror

EVE = LocalKey(b"e" * 32)


@pytest.fixture
def ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalKey:
    """The key that this process signs with."""
    monkeypatch.setenv(KEY_FOLDER, str(tmp_path / "keys"))
    return local_key(tmp_path / "keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def problem(artifact: Artifact, policy: Policy, log: LogView | None = None) -> str | None:
    where = Path(artifact.store.root, artifact.spec.address, MANIFEST_NAME)
    unsound = Judge(policy, log).manifest(artifact.store.storage, artifact.manifest, where.read_text())
    return None if unsound is None else unsound.kind


def test_a_committed_artifact_is_signed_and_in_toto_reads_it(store: Store, ada: LocalKey) -> None:
    artifact = made(store, "words")
    envelope = read_envelope(envelope_path(artifact).read_text(), "it")
    record = read_statement(envelope, "it")
    validate(record)
    assert envelope.signers([ada.public, EVE.public]) == {ada.public.key_id}
    assert digest_of(record, f"{artifact.spec.address}/{MANIFEST_NAME}") == text_sha256(text_of(artifact))
    files = {f"{artifact.manifest.data_folder}/{entry.path}": entry.digest for entry in artifact.manifest.files}
    assert {s["name"]: s["digest"]["xxh3_128"] for s in record["subject"] if s["name"] in files} == files
    assert record["predicate"]["buildDefinition"]["externalParameters"]["dataVersion"] == artifact.data_version


def test_inputs_are_dependencies_of_the_statement(store: Store, ada: LocalKey) -> None:
    parent = made(store, "first")
    node = Node(("first",), None, WORDS, Words())
    child = made(store, "second", first=node)
    record = read_statement(read_envelope(envelope_path(child).read_text(), "it"), "it")
    (ref, *_) = record["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert ref["uri"].endswith(parent.spec.address) and ref["digest"] == {"marinDataVersion": parent.data_version}


def test_a_policy_says_whose_signature_counts(store: Store, ada: LocalKey) -> None:
    artifact = made(store, "words")
    assert problem(artifact, strict(named("ada", ada))) is None
    assert problem(artifact, strict(named("ada", ada, "waive", "publish"))) == "forged"
    assert problem(artifact, strict(named("eve", EVE))) == "forged"
    assert problem(artifact, Policy("tests", (named("eve", EVE),), strangers="allow")) is None


def test_a_resealed_manifest_has_no_signature(store: Store, ada: LocalKey) -> None:
    artifact = made(store, "words")
    path = Path(store.root, artifact.spec.address, MANIFEST_NAME)
    record = json.loads(path.read_text())
    del record["seal"]
    path.write_text(sealed(record | {"run_id": "another"}))
    forged = store.open(artifact.spec.address)
    assert forged is not None and problem(forged, strict(named("ada", ada))) == "unsigned"
    assert problem(forged, default_policy()) is None  # the default allows what is unsigned


def test_an_envelope_of_another_file_is_refused(store: Store, ada: LocalKey) -> None:
    first, second = made(store, "first"), made(store, "second")
    envelope_path(second).write_text(envelope_path(first).read_text())
    assert problem(second, strict(named("ada", ada))) == "forged"


def test_a_broken_signature_of_a_known_key_is_refused_even_by_default(store: Store, ada: LocalKey) -> None:
    artifact = made(store, "words")
    path = envelope_path(artifact)
    record = json.loads(path.read_text())
    record["signatures"][0]["sig"] = "A" * 86 + "=="
    path.write_text(json.dumps(record))
    assert problem(artifact, default_policy()) == "forged"


def test_an_older_format_is_refused_from_the_policy_on(store: Store, ada: LocalKey) -> None:
    artifact = made(store, "words")
    path = Path(store.root, artifact.spec.address, MANIFEST_NAME)
    record = json.loads(path.read_text())
    del record["seal"], record["made_by"]
    path.write_text(json.dumps(record | {"schema": 1}))
    old = store.open(artifact.spec.address)
    assert old is not None and problem(old, strict(named("ada", ada))) == "unsigned"


def test_two_keys_sign_a_waiver_for_everything(store: Store, ada: LocalKey) -> None:
    broad = waive(store, Waiver("failed", "*", "ada", "known", "2099-01-01"))
    narrow = waive(store, Waiver("failed", "corpus/*", "ada", "known", "2099-01-01"))
    policy = strict(named("ada", ada, "waive"), named("eve", EVE, "waive"))
    assert problem(narrow, policy) is None and problem(broad, policy) == "forged"
    where = f"{broad.spec.address}/{MANIFEST_NAME}"
    countersign(store.storage, where, text_of(broad), EVE)
    assert problem(broad, policy) is None
    countersign(store.storage, where, text_of(broad), EVE)  # again: still one signature of each
    assert len(read_envelope(envelope_path(broad).read_text(), "it").signatures) == 2


def test_a_record_is_signed_before_it_is_there(tmp_path: Path, ada: LocalKey) -> None:
    storage = Storage(str(tmp_path))
    address = sign_record(storage, "verdicts/1.json", "text", "judge")
    assert address == envelope_address("verdicts/1.json", "text") and not (tmp_path / "verdicts/1.json").exists()
    judge = Judge(strict(named("ada", ada, "judge")))
    assert judge.file(storage, "verdicts/1.json", "text", "judge") is None
    assert judge.file(storage, "verdicts/1.json", "text", "make") is not None
    assert judge.file(storage, "verdicts/1.json", "changed", "judge") is not None
    assert judge.file(storage, "verdicts/2.json", "text", "judge") is not None
    with pytest.raises(EnvelopeError, match="no signature to add to"):
        countersign(storage, "verdicts/1.json", "changed", EVE)


def test_the_log_grows_and_finds_a_rollback(store: Store, ada: LocalKey, tmp_path: Path) -> None:
    policy = strict(named("ada", ada))
    outside = Storage(str(tmp_path / "log"))
    artifact = made(store, "words")
    path = Path(store.root, artifact.spec.address, MANIFEST_NAME)
    older, older_signature = path.read_text(), envelope_path(artifact).read_text()
    first = append(outside, store.storage, ada, policy)
    assert append(outside, store.storage, ada, policy) == first  # nothing new, nothing written
    store.delete(artifact)
    again = made(store, "words")
    assert problem(again, policy, first) is None  # newer than the log
    second = append(outside, store.storage, ada, policy)
    assert [len(view.entries) for view in (first, second)] == [1, 2] and problem(again, policy, second) is None
    path.write_text(older)
    Path(store.root, envelope_address(f"{artifact.spec.address}/{MANIFEST_NAME}", older)).write_text(older_signature)
    rolled = store.open(artifact.spec.address)
    assert rolled is not None and problem(rolled, policy) is None
    assert problem(rolled, policy, second) == "rolled_back"
    proof = inclusion_proof(second.leaves, 1)
    assert includes(second.entries[1].leaf, 1, 2, proof, bytes.fromhex(second.head.root))


def test_a_cut_or_rewritten_log_is_found(store: Store, ada: LocalKey, tmp_path: Path) -> None:
    policy, seen = strict(named("ada", ada)), tmp_path / "state" / "heads.json"
    outside = Storage(str(tmp_path / "log"))
    made(store, "first")
    append(outside, store.storage, ada, policy)
    made(store, "second")
    append(outside, store.storage, ada, policy)
    for folder in (HEADS, ENTRIES):  # what a killed writer left
        (Path(outside.root) / folder / ".x.0badf00d").write_text("")
    assert len(read_log(outside, policy, seen).entries) == 2
    with pytest.raises(LogError, match="no key that may publish"):
        read_log(outside, strict(named("eve", EVE)))
    entries = tmp_path / "log" / "entries" / f"{1:012d}.jsonl"
    kept, head = entries.read_text(), (tmp_path / "log" / head_name(2)).read_text()
    entries.write_text(kept.replace("second", "third"))
    with pytest.raises(LogError, match="its first 2 entries have root"):
        read_log(outside, policy)
    entries.unlink()
    with pytest.raises(LogError, match="entries were removed"):
        read_log(outside, policy)
    (tmp_path / "log" / head_name(2)).unlink()
    assert len(read_log(outside, policy).entries) == 1  # a whole older log, which only memory distinguishes from today's
    with pytest.raises(LogError, match="entries were removed"):
        read_log(outside, policy, seen)
    entries.write_text(kept)
    with pytest.raises(LogError, match="one with 2 was seen"):
        read_log(outside, policy, seen)
    (tmp_path / "log" / head_name(2)).write_text(head)
    assert len(read_log(outside, policy, seen).entries) == 2


def test_lost_verdicts_are_named(store: Store, ada: LocalKey, tmp_path: Path) -> None:
    for number in (1, 2):
        store.storage.create(f".trust/verdicts/{number:08d}.json", f"verdict {number}")
    view = append(Storage(str(tmp_path / "log")), store.storage, ada, strict(named("ada", ada)))
    present = {name: text_sha256(store.storage.read_text(name) or "") for name in verdict_records(store.storage)}
    assert len(present) == 2 and view.lost_verdicts(present) == []
    last = ".trust/verdicts/00000002.json"
    assert view.lost_verdicts({name: digest for name, digest in present.items() if name != last}) == [last]
    assert view.lost_verdicts(present | {last: "another"}) == [last]


VOUCHED = "{name: a@x.org, issuer: 'https://x.org', may: [waive]}"


def test_identities_of_a_policy_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"identities: {{ada: {VOUCHED}}}\n")
    policy = read_policy(path)
    assert policy.identities == (NamedIdentity("ada", Identity("a@x.org", "https://x.org"), frozenset({"waive"})),)
    assert "keys ada (waive)" in str(policy)


def test_a_keyless_signature_that_cannot_be_checked_here_does_not_count(
    store: Store, ada: LocalKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PyPI's sigstore. A signature by a key counts as before; where there is none, the refusal says what to install."""
    monkeypatch.setitem(sys.modules, "sigstore", None)
    words = made(store, "words")
    where = f"{words.spec.address}/{MANIFEST_NAME}"
    text = store.storage.read_text(where) or ""
    store.storage.create(keyless_address(where, text, "bob"), "{}")
    bob = NamedIdentity("bob", Identity("b@x.org", "https://x.org"), frozenset({"make"}))
    both = Policy("test", (named("ada", ada, "make"),), "refuse", identities=(bob,))
    assert Judge(both).manifest(store.storage, words.manifest, text) is None
    refused = Judge(replace(both, keys=())).manifest(store.storage, words.manifest, text)
    assert refused is not None and refused.kind == "forged" and "install PyPI's sigstore" in refused.detail
    other = replace(both, keys=(), identities=(replace(bob, may=frozenset({"judge"})),))
    assert "install" not in str(Judge(other).manifest(store.storage, words.manifest, text)), "it is not asked"


def test_a_policy_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"keys:\n  eve: {{public: {EVE.public.text}, may: [make]}}\nunsigned: refuse\n")
    policy = read_policy(path)
    assert policy.keys == (named("eve", EVE, "make"),) and policy.unsigned == "refuse"
    for text, message in (
        ("unsigned: maybe", "allowed: allow, refuse"),
        ("signed: yes", "has the field 'signed'"),
        ("keys: {eve: {public: AAAA, may: [make]}}", "key eve"),
        (f"keys: {{eve: {{public: {EVE.public.text}, may: [rule]}}}}", "allowed: make, judge, waive, publish"),
        (f"keys: {{a: {{public: {EVE.public.text}, may: []}}, b: {{public: {EVE.public.text}, may: []}}}}", "same key"),
        ("waive_all: true", "whole number"),
        ("identities: [ada]", "must map names to a name"),
        ("identities: {ada: {name: a@x.org, may: [waive]}}", "must have `name`, `issuer` and a list `may`"),
        ("identities: {ada: {name: a@x.org, issuer: x.org, may: [waive]}}", "issuer a URL"),
        ("identities: {ada: {name: a@x.org, issuer: 'https://x.org', may: [rule]}}", "allowed: make, judge, waive, publish"),
        ("identities: {ada: {name: a@x.org, issuer: 'https://x.org', may: [], staging: 1}}", "true or false"),
        ("identities: {a/b: {name: a@x.org, issuer: 'https://x.org', may: []}}", "'/' is not allowed"),
        (f"identities: {{a: {VOUCHED}, b: {VOUCHED}}}", "same identity"),
        (f"keys: {{a: {{public: {EVE.public.text}, may: []}}}}\nidentities: {{a: {VOUCHED}}}", "a key and an identity"),
        ("[]", "must be a mapping"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_policy(path)
    with pytest.raises(ValueError, match="which is no file"):
        policy_from({"MARIN_POLICY": str(tmp_path / "absent.yaml")})


def test_nothing_is_signed_where_the_environment_says_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_SIGNING_KEY", "off")
    artifact = made(store, "words")
    assert not Path(store.root, artifact.spec.address, "signatures").exists()
    assert build(store, Node(("words",), None, WORDS, Words())).reused


def gated(store: Store, artifact: Artifact) -> list[str]:
    return [f"{finding.problem}: {finding.detail}" for finding in inspect(store, [artifact.ref("it")], {})]


@pytest.fixture
def policed(tmp_path: Path, ada: LocalKey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy file that counts this process's key alone, and a log; its path is what `MARIN_POLICY` names."""
    path = tmp_path / "lab.yaml"
    path.write_text(
        f"keys:\n  ada: {{public: {ada.public.text}, may: [make, judge, waive, publish]}}\n"
        f"unsigned: refuse\noldest_schema: 2\nlog: {tmp_path / 'log'}\n"
    )
    monkeypatch.setenv("MARIN_POLICY", str(path))
    return path


def test_the_gate_judges_signatures_by_the_policy_file(store: Store, policed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = made(store, "words")
    assert gated(store, artifact) == []
    envelope_path(artifact).unlink()
    assert "unsigned" in gated(store, artifact)[0]
    monkeypatch.setenv("MARIN_POLICY", "")
    assert gated(store, artifact) == []


def test_the_gate_refuses_a_lifted_quarantine_that_nobody_signed(
    store: Store, policed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = made(store, "words")
    quarantine(artifact, "bad", "ada")
    assert [line.split(":")[0] for line in gated(store, artifact)] == ["quarantined"]
    monkeypatch.setenv("MARIN_SIGNING_KEY", "off")
    quarantine(artifact, "fine", "eve", standing=False)
    assert "unjudged" in gated(store, artifact)[0] and "quarantined" in gated(store, artifact)[1]


def test_the_gate_finds_a_verdict_log_that_was_cut(store: Store, policed: Path, ada: LocalKey, tmp_path: Path) -> None:
    artifact = made(store, "words")
    quarantine(artifact, "bad", "ada")
    append(Storage(str(tmp_path / "log" / "store")), store.storage, ada, read_policy(policed))
    for path in Path(store.root, ".trust", "verdicts").iterdir():
        if path.is_file():
            path.unlink()
    assert "unjudged" in gated(store, artifact)[0] and "00000001.json" in gated(store, artifact)[0]


def test_a_waiver_that_nobody_signed_does_not_count(store: Store, policed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = made(store, "words")
    quarantine(artifact, "bad", "ada")
    waiver = Waiver("quarantined", "words", "ada", "known", "2099-01-01")
    today = datetime.date(2026, 11, 24)
    monkeypatch.setenv("MARIN_SIGNING_KEY", "off")
    forged = waive(store, waiver)
    with pytest.raises(GateError, match="a waiver does not count"):
        check_launch(store, "target", [artifact.ref("it")], {}, today)
    monkeypatch.delenv("MARIN_SIGNING_KEY")
    store.delete(forged)
    waive(store, waiver)
    assert check_launch(store, "target", [artifact.ref("it")], {}, today)


def test_a_mirrored_artifact_keeps_its_signature(store: Store, policed: Path, tmp_path: Path) -> None:
    artifact = made(store, "words")
    other = Store(str(tmp_path / "other"))
    list(mirror(artifact, other, "ada"))
    copied = other.open(artifact.spec.address)
    assert copied is not None and gated(other, copied) == []
