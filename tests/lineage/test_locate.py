"""Finding an artifact by folder, address or name; an error lists what exists."""

import json
import os
import uuid
from pathlib import Path

import pytest
from gcs_server import GcsServer
from random_lineage import write, write_dag

from lineage.artifact.locate import locate
from lineage.artifact.manifest import sealed
from lineage.artifact.newest import UnclearOrderError
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
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


def test_a_writer_whose_clock_is_wrong_decides_nothing(tmp_path: Path) -> None:
    """The last one to be written says that it is the oldest, or an old one says that it is of tomorrow."""
    store = Store(str(tmp_path))
    first, second = (write(store, 4, [], seed=seed) for seed in range(2))
    place(second, first.manifest.created)
    assert locate([store], "tests/n4").spec == max(first.spec, second.spec, key=lambda spec: spec.version), "equal times"
    for artifact, created in ((second, "2020-01-01T00:00:00.000+00:00"), (first, "2030-01-01T00:00:00.000+00:00")):
        place(artifact, created)
        with pytest.raises(UnclearOrderError, match="it is unclear which tests/n4 is the newest") as unclear:
            locate([store], "tests/n4")
        assert first.spec.address in str(unclear.value) and second.spec.address in str(unclear.value)
        assert locate([store], artifact.spec.address).spec == artifact.spec, "an address is exact"
        place(artifact, artifact.manifest.created)


def place(artifact: Artifact, created: str) -> None:
    """Give a manifest another time, as a machine with that clock writes it at the time of the file."""
    path = Path(artifact.store.root, artifact.spec.address, "manifest.json")
    facts = path.stat()
    record = json.loads(path.read_text())
    del record["seal"]
    path.write_text(sealed(record | {"created": created}))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_the_clock_of_a_bucket_counts(gcs: GcsServer, tmp_path: Path) -> None:
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path))
    first, second = (write(store, 4, [], seed=seed) for seed in range(2))
    assert locate([store], "tests/n4").spec == second.spec
    where = f"{first.spec.address}/manifest.json"
    store.storage.replace(where, (store.storage.read_text(where) or "").encode())
    with pytest.raises(UnclearOrderError, match="give an address"):
        locate([store], "tests/n4")


def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[]])
    with pytest.raises(ValueError, match=r"no artifact 'tests/n0\[kjv\]' .* under tests/n0 there is: _"):
        locate([store], "tests/n0[kjv]")
    with pytest.raises(ValueError, match="nothing is under that key"):
        locate([store], "elsewhere")
    with pytest.raises(ValueError, match="names look like"):
        locate([store], "a[b][c]")


def test_a_name_of_days_without_one_is_the_last_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stores = [Store(str(tmp_path / "a")), Store(str(tmp_path / "b"))]
    for store, day in zip(stores, ("2026-11-21", "2026-11-09"), strict=True):
        with writing(store, ArtifactSpec(("ferry", "report"), day, "tests.plain", "1", {})) as out:
            (out.folder / "file.txt").write_text("bytes")
    assert locate(stores, "ferry/report").spec.partition == "2026-11-21"
    assert "the last one is taken, ferry/report[2026-11-21]" in caplog.text
    (tmp_path / "b" / "ferry" / "report" / "2026-11-30").mkdir()
    assert locate(stores, "ferry/report").spec.partition == "2026-11-21", "an empty folder is no day"


def test_a_name_of_sources_without_one_is_refused_with_those_there_are(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for source in ("kjv", "wiki"):
        with writing(store, ArtifactSpec(("datakit", "raw"), source, "tests.plain", "1", {})) as out:
            (out.folder / "file.txt").write_text("bytes")
    with pytest.raises(ValueError, match="under datakit/raw there is: kjv, wiki"):
        locate([store], "datakit/raw")


def test_a_moved_folder_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "a"))
    (made,) = write_dag(store, [[]])
    (tmp_path / "a" / made.spec.address).rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="copied or moved by hand"):
        locate([store], str(tmp_path / "elsewhere"))
