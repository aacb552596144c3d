"""Finding an artifact by folder, address or name; an error lists what exists."""

from pathlib import Path

import pytest
from random_lineage import write, write_dag

from lineage.artifact.locate import locate
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.writing.write import writing


def test_folder_address_and_name_mean_the_same_artifact(tmp_path: Path) -> None:
    stores = [Store(str(tmp_path / "a")), Store(str(tmp_path / "b"))]
    write_dag(stores[0], [[]])
    spec = ArtifactSpec(("runs", "x", "checkpoint"), "2026-11-21", "tests.plain", "1", {})
    with writing(stores[1], spec) as out:
        (out.folder / "file.txt").write_text("bytes")
    for text in (str(tmp_path / "b" / spec.address), spec.address, spec.address + "/", "runs/x/checkpoint[2026-11-21]"):
        artifact = locate(stores, text)
        assert artifact.spec == spec
        assert Path(artifact.store.root) == tmp_path / "b"


def test_the_newest_of_a_name_is_taken_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(str(tmp_path))
    made = [write(store, 4, [], seed=seed) for seed in range(3)]
    newest = max(made, key=lambda artifact: (artifact.manifest.created, artifact.spec.version))
    assert locate([store], "tests/n4").spec == newest.spec
    assert "3 artifacts are called tests/n4" in caplog.text


def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[]])
    with pytest.raises(ValueError, match=r"no artifact 'tests/n0\[kjv\]' .* under tests/n0 there is: _"):
        locate([store], "tests/n0[kjv]")
    with pytest.raises(ValueError, match="nothing is under that key"):
        locate([store], "elsewhere")
    with pytest.raises(ValueError, match="names look like"):
        locate([store], "a[b][c]")


def test_a_moved_folder_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "a"))
    (made,) = write_dag(store, [[]])
    (tmp_path / "a" / made.spec.address).rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="copied or moved by hand"):
        locate([store], str(tmp_path / "elsewhere"))
