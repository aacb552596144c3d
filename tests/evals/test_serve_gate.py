"""Serving refuses checkpoints that the gate refuses; a copy without ancestors is served with a notice."""

import logging
from pathlib import Path

import pytest

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.trust.gate import GateError
from lineage.trust.verdicts import quarantine
from lineage.writing.write import writing
from serving.server.opening import refuse_unfit


def checkpoint_of_data(store: Store) -> tuple[Artifact, Artifact]:
    made = []
    for key in ("data", "checkpoint"):
        refs = tuple(artifact.ref("data") for artifact in made)
        with writing(store, ArtifactSpec((key,), None, f"tests.{key}", "1", {}, refs)) as out:
            (out.folder / "file").write_text(key)
        made.append(out.artifact)
    return made[0], made[1]


def test_a_checkpoint_on_quarantined_data_is_not_served(tmp_path: Path) -> None:
    data, checkpoint = checkpoint_of_data(Store(str(tmp_path)))
    refuse_unfit(checkpoint)
    quarantine(data, "the wrong site", "ada")
    with pytest.raises(GateError, match=r"serving checkpoint is refused.*\n  quarantined: data: quarantine: the wrong site"):
        refuse_unfit(checkpoint)


def test_a_checkpoint_that_was_copied_alone_is_served_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, checkpoint = checkpoint_of_data(Store(str(tmp_path)))
    data.store.delete(data)
    with caplog.at_level(logging.WARNING):
        refuse_unfit(checkpoint)
    assert "1 of its ancestors are not in" in caplog.text
