"""An exported folder: a stranger verifies it with the publisher's key alone, and every kind of change is found."""

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_der_public_key
from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from published_store import Lab, small_lab
from rich.console import Console
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey
from typer.testing import CliRunner

from lineage.private_files import KEY_FOLDER
from lineage.signing.attested import Attested, verify_attested
from lineage.signing.bundle import ATTESTATION, KEYLESS, LOG_FILE, MANIFESTS
from lineage.signing.envelope import EnvelopeError
from lineage.signing.keyless import Identity
from lineage.signing.keys import LocalKey, local_key
from lineage.signing.policy import POLICY
from marin_assets.cli import signing
from marin_assets.cli.app import app

PAGE = Path(__file__).resolve().parents[2] / "docs/recipes/verify_a_checkpoint.md"
RECORDED = Path(__file__).with_name("recorded")
EVE = LocalKey(b"e" * 32)


@dataclass(frozen=True)
class Exported:
    lab: Lab
    folder: Path
    key: LocalKey
    policy: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """A lab with a policy and a log; its model, exported."""
    folder = tmp_path_factory.mktemp("world")
    key = local_key(folder / "keys")
    policy = folder / "lab.yaml"
    policy.write_text(
        f"keys:\n  ada: {{public: {key.public.text}, may: [make, judge, waive, publish]}}\n"
        f"unsigned: refuse\nlog: {folder / 'log'}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FOLDER, str(folder / "keys"))
        patch.setenv(POLICY, str(policy))
        lab = small_lab(folder / "store")
        root = lab.exported.store.root
        signing.append_logs(root, console=Console(quiet=True))
        assert signing.export(
            lab.exported.spec.address, root, str(folder / "exported"), "Apache-2.0", console=Console(quiet=True)
        )
        yield Exported(lab, folder / "exported", key, policy)


@pytest.fixture
def folder(world: Exported, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(world.folder, tmp_path / "copy"))


def verified(world: Exported, folder: Path) -> Attested:
    return verify_attested(folder, [world.key.public])


def test_a_stranger_verifies_what_it_was_made_from_and_by_whom(world: Exported) -> None:
    attested = verified(world, world.folder)
    assert attested.holds and attested.publishers == (world.key.public.key_id,)
    assert {one.name for one in attested.walked} == {"runs/tiny/hf_model[step-1]", "runs/tiny/checkpoint[step-1]", "corpus",
                                                  "raw[one]", "raw[two]"}  # fmt: skip
    assert all(one.signed_by == ("ada",) and one.logged for one in attested.walked)
    card = (world.folder / "README.md").read_text()
    assert (
        json.loads(base64.b64decode(json.loads((world.folder / LOG_FILE).read_text())["head"]["payload"]))["predicate"]["root"]
        in card
    )
    assert "license: apache-2.0" in card and "| contamination audit | clean" in card


def test_the_code_of_the_page_accepts_the_folder_and_refuses_a_changed_byte(
    world: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `securesystemslib` and `cryptography` alone, as docs/recipes/verify_a_checkpoint.md says."""
    shutil.copytree(world.folder, tmp_path / "out/smoke")
    (tmp_path / "lab.pem").write_text(world.key.public.pem)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
    exec(code, {})
    weights = tmp_path / "out/smoke/model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"x")
    with pytest.raises(AssertionError, match=r"model\.safetensors"):
        exec(code, {})


def test_a_key_that_is_not_the_publishers_is_not_enough(world: Exported) -> None:
    attested = verify_attested(world.folder, [EVE.public])
    assert not attested.holds and "no key that you named" in attested.findings[0]


def test_an_attestation_without_a_type_is_a_finding(world: Exported, folder: Path) -> None:
    """Its payload is edited, so its signature does not hold either; a traceback would say neither."""
    path = folder / ATTESTATION
    envelope = json.loads(path.read_text())
    record = json.loads(base64.b64decode(envelope["payload"]))
    del record["predicateType"]
    path.write_text(json.dumps({**envelope, "payload": base64.b64encode(json.dumps(record).encode()).decode()}))
    attested = verified(world, folder)
    assert not attested.holds and f"{ATTESTATION} is None, not " in attested.findings[-1]


def _edit(path: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / path
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return edit


def _ancestor(folder: Path) -> Path:
    return next(path for path in (folder / MANIFESTS / "corpus").rglob("manifest.json"))


def _forged_ancestor(folder: Path) -> None:
    """Somebody without a key edits an ancestor, seals it again and names the new bytes everywhere but in the attestation."""
    from lineage.artifact.manifest import sealed

    path = _ancestor(folder)
    record = json.loads(path.read_text())
    del record["seal"]
    path.write_text(sealed(record | {"run_id": "forged"}))


def _resigned_by_eve(folder: Path) -> None:
    from dataclasses import replace

    from lineage.signing.envelope import read_envelope

    path = folder / ATTESTATION
    path.write_text(replace(read_envelope(path.read_text(), "it"), signatures=()).signed_by(EVE).to_json())


TAMPERED: dict[str, Callable[[Path], None]] = {
    "a weight is changed": _edit("model.safetensors", b"weights", b"weighty"),
    "the config is changed": _edit("config.json", b"llama", b"alpaca"),
    "the card is changed": _edit("README.md", b"clean", b"spotless"),
    "the bill of materials is changed": _edit("sbom.spdx.json", b"MIT", b"ISC"),
    "a file is added": lambda folder: (folder / "modeling.py").write_text("import os") and None,
    "a file is removed": lambda folder: (folder / "config.json").unlink(),
    "a file is a link": lambda folder: (folder / "link.json").symlink_to("/etc/passwd"),
    "an ancestor is removed": lambda folder: _ancestor(folder).unlink(),
    "an ancestor is forged": _forged_ancestor,
    "an ancestor's signature is removed": lambda folder: next(_ancestor(folder).parent.rglob("signatures/*.json")).unlink(),
    "the log is removed": lambda folder: (folder / LOG_FILE).unlink(),
    "a proof is changed": _edit(LOG_FILE, b'"index": 0', b'"index": 1'),
    "the attestation's payload is changed": _edit(ATTESTATION, b'"payload": "ey', b'"payload": "eY'),
    "the attestation is signed by another": _resigned_by_eve,
    "the attestation is of another type": _edit(ATTESTATION, b"vnd.in-toto", b"vnd.in-tata"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_folder_does_not_hold(world: Exported, folder: Path, what: str) -> None:
    TAMPERED[what](folder)
    try:
        attested = verified(world, folder)
    except EnvelopeError:
        return
    assert not attested.holds, attested


def test_a_keyless_signature_of_something_else_is_a_finding(world: Exported, folder: Path) -> None:
    """The bundle is real, of Sigstore's test instance, and signs another file. Without a bundle a finding says that too."""
    pytest.importorskip("sigstore")
    signer = Identity("william@yossarian.net", "https://github.com/login/oauth", is_staging=True)
    attested = verify_attested(folder, [], [signer])
    assert f"there is no {KEYLESS}" in attested.findings[1]
    shutil.copy(RECORDED / "signed.txt.sigstore.json", folder / KEYLESS)
    attested = verify_attested(folder, [], [signer])
    assert f"{KEYLESS} is no signature of william@yossarian.net" in attested.findings[1] and not attested.publishers
    assert verified(world, folder).holds, "for the publisher's key it is no file of the folder"


def test_a_folder_without_attestation_says_so(world: Exported, folder: Path) -> None:
    (folder / ATTESTATION).unlink()
    with pytest.raises(EnvelopeError, match="was not exported by"):
        verified(world, folder)


def test_others_libraries_accept_the_attestation_and_refuse_a_changed_byte(world: Exported) -> None:
    record = json.loads((world.folder / ATTESTATION).read_text())
    key = SSlibKey.from_crypto(load_der_public_key(world.key.public.der), keyid=world.key.public.key_id)
    theirs = TheirEnvelope.from_dict(json.loads(json.dumps(record)))
    assert theirs.verify([key], 1)
    Statement.copy_from_pb(ParseDict(json.loads(theirs.payload), statement_pb2.Statement())).validate()
    payload = bytearray(base64.b64decode(record["payload"]))
    payload[len(payload) // 2] ^= 1
    changed = record | {"payload": base64.b64encode(bytes(payload)).decode()}
    with pytest.raises(VerificationError):
        TheirEnvelope.from_dict(json.loads(json.dumps(changed))).verify([key], 1)


def test_an_unfit_artifact_is_not_exported(world: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = small_lab(tmp_path / "store")
    next(Path(lab.corpus.store.root, lab.corpus.spec.address, "signatures").iterdir()).unlink()
    written = signing.export(lab.exported.spec.address, lab.exported.store.root, str(tmp_path / "out"), None, console=Console())
    assert not written and not (tmp_path / "out").exists() and "unsigned: corpus" in capsys.readouterr().out


def test_a_corpus_is_exported_with_croissant(world: Exported, tmp_path: Path) -> None:
    corpus = world.lab.corpus
    assert signing.export(corpus.spec.address, corpus.store.root, str(tmp_path / "out"), None, console=Console(quiet=True))
    assert json.loads((tmp_path / "out" / "croissant.json").read_text())["conformsTo"].endswith("1.1")
    assert verified(world, tmp_path / "out").holds


def test_the_command_line_verifies_with_a_pem_file(world: Exported, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ada.pem").write_text(world.key.public.pem)
    command = ["verify", "--attested", str(folder), "--key", str(tmp_path / "ada.pem")]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0 and "published it" in ended.output
    (folder / "config.json").write_text("{}")
    ended = CliRunner().invoke(app, [*command, "--json"])
    assert ended.exit_code == 1 and not json.loads(ended.output)["holds"]


def test_the_key_is_printed_as_lab_yaml_names_it(world: Exported) -> None:
    assert CliRunner().invoke(app, ["key"]).output.strip() == world.key.public.text
    assert CliRunner().invoke(app, ["key", "--pem"]).output == world.key.public.pem
