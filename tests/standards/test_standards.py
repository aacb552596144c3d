"""Files in the forms of other standards, each read by that standard's own reader."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard, ModelCard
from published_store import Lab, small_lab
from spdx_python_model import v3_0_1 as spdx3

from lineage.private_files import KEY_FOLDER
from lineage.storage.digests import file_sha256
from standards.ancestry import ancestry_of, audit_of
from standards.croissant import croissant
from standards.hf_cards import dataset_card, model_card
from standards.openlineage import run_event, send
from standards.spdx import bill_of_materials
from standards.spdx_licences import expression


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FOLDER, str(folder / "keys"))
        yield small_lab(folder / "store")


def sha256_of(lab: Lab, which: str) -> dict[str, str]:
    artifact = getattr(lab, which)
    return {entry.path: file_sha256(artifact.folder() / entry.path) for entry in artifact.manifest.files}


def test_a_model_card_is_read_by_the_hubs_client(lab: Lab) -> None:
    text = model_card(ancestry_of(lab.exported, audit_of(lab.exported)), "Apache-2.0", "ab" * 32, "cd" * 32)
    card = ModelCard(text, ignore_metadata_errors=False)
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "transformers")
    assert lab.exported.data_version in text and f"clean (`{lab.audit.data_version}`)" in text and "ab" * 32 in text
    assert "unverified (said to be CC-BY-4.0)" in text and "two \\| of \\<them\\>" in text


def test_a_licence_that_nobody_stated_is_not_guessed(lab: Lab) -> None:
    card = ModelCard(model_card(ancestry_of(lab.exported), None, None, "cd" * 32))
    assert (card.data.license, card.data.license_name) == ("other", "see-sources")
    assert "not audited" in card.text and "no log is kept" in card.text


def test_a_data_set_card_is_read_by_the_hubs_client(lab: Lab) -> None:
    card = DatasetCard(dataset_card(ancestry_of(lab.corpus), None, "cd" * 32), ignore_metadata_errors=False)
    assert card.data.license == "other"  # one source's licence is unverified
    assert card.data.size_categories == ["n<1K"]
    splits = {each["split"]: each["path"] for each in card.data.configs[0]["data_files"]}
    assert splits == {"train": "train/*.parquet", "validation": "heldout/*.parquet"}


def test_an_audit_of_another_checkpoint_is_not_taken(lab: Lab, tmp_path: Path) -> None:
    other = small_lab(tmp_path / "other", licence="MIT")
    audit = audit_of(other.exported)
    assert audit is not None and audit.spec.address == other.audit.spec.address
    other.audit.store.delete(other.audit)
    assert audit_of(other.exported) is None


def test_a_bill_of_materials_is_read_by_spdx_itself(lab: Lab) -> None:
    bill = bill_of_materials(ancestry_of(lab.exported, lab.audit), sha256_of(lab, "exported"), None)
    objects = spdx3.SHACLObjectSet()
    spdx3.JSONLDDeserializer().read(BytesIO(json.dumps(bill).encode()), objects)
    assert not objects.missing_ids - {"https://spdx.org/rdf/3.0.1/terms/Core/NoAssertionElement"}
    (model,) = objects.foreach_type("ai_AIPackage")
    assert model.software_packageVersion == lab.exported.data_version
    assert {each.name for each in objects.foreach_type("dataset_DatasetPackage")} == {"one", "two | of <them>"}
    trained = [each for each in objects.foreach_type("Relationship") if each.relationshipType.endswith("trainedOn")]
    assert len(trained) == 1 and len(trained[0].to) == 2
    licences = {each.simplelicensing_licenseExpression for each in objects.foreach_type("simplelicensing_LicenseExpression")}
    assert licences == {"MIT"}
    spdx3.JSONLDSerializer().write(objects, BytesIO())  # this checks what must be there, and how often


def test_spdx_refuses_a_bill_that_lacks_what_it_must_have(lab: Lab) -> None:
    bill = bill_of_materials(ancestry_of(lab.exported), {}, None)
    bill["@graph"][0]["created"] = "yesterday"
    with pytest.raises(ValueError):
        spdx3.JSONLDDeserializer().read(BytesIO(json.dumps(bill).encode()), spdx3.SHACLObjectSet())


@pytest.mark.parametrize(
    ("licence", "written"),
    [
        ("MIT", "MIT"),
        ("Apache-2.0 OR MIT", "Apache-2.0 OR MIT"),
        ("NOASSERTION", "NOASSERTION"),
        ("public domain (US government works)", "LicenseRef-public-domain-US-government-works"),
        ("MIT AND", "LicenseRef-MIT-AND"),
        ("🙂", "LicenseRef-unnamed"),
    ],
)
def test_licences_are_spdx_expressions(licence: str, written: str) -> None:
    assert expression(licence) == written


def test_croissant_names_every_file(lab: Lab) -> None:
    """`mlcroissant` itself reads it in `make test-long` (tests/standards/test_croissant_itself.py)."""
    described = croissant(ancestry_of(lab.corpus), sha256_of(lab, "corpus"))
    files = {each["@id"]: each["sha256"] for each in described["distribution"] if each["@type"] == "cr:FileObject"}
    assert files == sha256_of(lab, "corpus")
    with pytest.raises(ValueError, match="Croissant requires it"):
        croissant(ancestry_of(lab.corpus), {})


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, str | None, dict[str, Any]]]]]:
    """A real HTTP server on loopback that keeps what it is sent."""
    taken: list[tuple[str, str | None, dict[str, Any]]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, self.headers.get("Authorization"), json.loads(body)))
            self.send_response(403 if "refuse" in self.path else 201)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


def test_events_reach_the_server_that_the_environment_names(lab: Lab, server: tuple[str, list]) -> None:
    url, taken = server
    event = run_event(lab.corpus.manifest)
    assert send(event, {"OPENLINEAGE_URL": url, "OPENLINEAGE_API_KEY": "secret"})
    assert taken == [("/api/v1/lineage", "Bearer secret", event)]
    assert [each["name"] for each in event["inputs"]] == ["raw/one", "raw/two"]
    assert event == run_event(lab.corpus.manifest) and event["run"] != run_event(lab.exported.manifest)["run"]
    assert not send(event, {})
    assert not send(event, {"OPENLINEAGE_URL": url, "OPENLINEAGE_ENDPOINT": "refuse"})
    with pytest.raises(ValueError, match="give an http"):
        send(event, {"OPENLINEAGE_URL": "file:///etc/passwd"})


def test_a_server_that_is_away_stops_nothing(lab: Lab) -> None:
    assert not send(run_event(lab.corpus.manifest), {"OPENLINEAGE_URL": "http://127.0.0.1:9"})
