"""A corpus's Croissant file and the OpenLineage events, read by `mlcroissant` and `openlineage-python`.

Both are optional packages (`make extras`); `make test-long` runs this file in their environment.
"""

import json
import shutil
from pathlib import Path

import pytest
from published_store import small_lab

from lineage.private_files import KEY_FOLDER
from lineage.storage.digests import file_sha256
from standards.ancestry import ancestry_of
from standards.croissant import CONFORMS_TO, croissant
from standards.openlineage import run_event


# rdflib, which mlcroissant parses with, warns of its own classes.
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:rdflib.*")
def test_mlcroissant_reads_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    monkeypatch.setenv(KEY_FOLDER, str(tmp_path / "keys"))
    corpus = small_lab(tmp_path / "store").corpus
    folder = tmp_path / "exported"
    shutil.copytree(corpus.folder(), folder)
    sha256 = {entry.path: file_sha256(folder / entry.path) for entry in corpus.manifest.files}
    (folder / "croissant.json").write_text(json.dumps(croissant(ancestry_of(corpus), sha256)))
    dataset = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors and CONFORMS_TO.rpartition("/")[2] in str(dataset.metadata.conforms_to)
    rows = list(dataset.records("train"))
    assert [row["train/text"] for row in rows] == [b"some text"] * 3


def test_openlineage_reads_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event_v2 = pytest.importorskip("openlineage.client.event_v2")
    serde = pytest.importorskip("openlineage.client.serde")
    monkeypatch.setenv(KEY_FOLDER, str(tmp_path / "keys"))
    event = run_event(small_lab(tmp_path / "store").corpus.manifest)
    theirs = event_v2.RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        eventType=event_v2.RunState(event["eventType"]),
        run=event_v2.Run(**event["run"]),
        job=event_v2.Job(**event["job"]),
        inputs=[event_v2.InputDataset(**each) for each in event["inputs"]],
        outputs=[event_v2.OutputDataset(**each) for each in event["outputs"]],
    )
    assert serde.Serde.to_dict(theirs)["schemaURL"] == event["schemaURL"]
