"""Names from somebody else's storage never become a path outside the folder that they belong to.

The reproduction of 2026-11-23 (red team, C1): a foreign bucket whose manifest called a file `/home/.../.bashrc` replaced
that file when the artifact was mirrored, audited or served.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.artifact.file_entries import file_entry
from lineage.artifact.manifest import MANIFEST_NAME, FileEntry, content_version
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.names import check_part, check_relative
from lineage.shards.shared import RECORD_NAME, SharedShards
from lineage.storage.digests import identity_digest
from lineage.storage.root import Storage
from lineage.upkeep.mirror import mirror
from lineage.writing.write import writing

Edit = Callable[[dict[str, Any]], None]


def foreign_artifact(root: str, scratch: Path, edit: Edit) -> Artifact:
    """An artifact on a remote root whose manifest an attacker edited and sealed again, as anybody who can write it may."""
    store = Store(root, scratch_folder=str(scratch))
    with writing(store, ArtifactSpec(("raw",), None, "tests.raw", "1", {})) as out:
        (out.folder / "text").write_text("honest")
    with writing(store, ArtifactSpec(("foreign",), None, "tests.foreign", "1", {}, (out.artifact.ref("raw"),))) as out:
        (out.folder / "text").write_text("PWNED")
    where = f"{out.artifact.spec.address}/{MANIFEST_NAME}"
    record = json.loads(store.storage.read_text(where) or "")
    record.pop("seal")
    edit(record)
    record["seal"] = identity_digest(record)
    store.storage.replace(where, json.dumps(record).encode())
    return out.artifact


def place(name: str) -> Edit:
    """Call the data file by another name, in step with the data version."""

    def edit(record: dict[str, Any]) -> None:
        record["files"][0]["path"] = name
        record["data_version"] = identity_digest([[name, record["files"][0]["bytes"], record["files"][0]["digest"]]])

    return edit


def with_field(**fields: Any) -> Edit:
    return lambda record: record.update(fields)


def with_address(address: str) -> Edit:
    return lambda record: record["inputs"][0].update(address=address)


@pytest.mark.parametrize(
    "edit",
    [
        place("/tmp/marin-never-written"),
        place("../../../outside"),
        place("a/../../../../outside"),
        place("a//b"),
        place(""),
        place("."),
        place("a\\..\\b"),
        place("a\nb"),
        place("a\x00b"),
        place("\ud800"),
        place("x" * 256),
        with_field(data_folder="../../../.."),
        with_field(data_folder="/tmp"),
        with_field(data_folder=""),
        with_field(data_folder=None),
        with_field(shards={"s": {"files": ["../../x"], "statistics": {}}}),
        with_field(shards={"../s": {"files": [], "statistics": {}}}),
        with_address("../../../../elsewhere"),
        with_address("/etc"),
        with_address("raw/_/../../../x"),
        with_address("other/_/" + "0" * 32),
    ],
)
def test_a_foreign_manifest_is_refused_before_a_file_is_fetched(tmp_path: Path, edit: Edit) -> None:
    artifact = foreign_artifact(f"memory://{tmp_path.name}", tmp_path / "scratch", edit)
    lab = Store(str(tmp_path / "lab"))
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    foreign = Store(artifact.store.root, scratch_folder=str(tmp_path / "scratch"))
    with pytest.raises(ValueError, match=r"not allowed|must be|longer than|cannot encode|is not among|an address is"):
        list(mirror(foreign.open(artifact.spec.address) or artifact, lab, "me"))
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("name", ["../b", "/etc/passwd", "a/../../b", "..", "a/", "\\b"])
def test_a_local_root_refuses_names_that_leave_it(tmp_path: Path, name: str) -> None:
    storage = Storage(str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    (tmp_path / "b").write_text("mine")
    operations: list[Callable[[], object]] = [
        lambda: storage.read_text(name),
        lambda: storage.create(name, "x"),
        lambda: storage.replace(name, b"x"),
        lambda: storage.delete(name),
        lambda: storage.local(name),
        lambda: storage.copy({"a": name}),
        lambda: storage.sizes(name),
        lambda: storage.publish(tmp_path / "root", name),
        lambda: storage.files.read_range(name, 0, 1),
        lambda: storage.files.swap(name, b"x", ""),
        lambda: storage.files.folders(name),
    ]
    for operation in operations:
        with pytest.raises(ValueError, match="not allowed"):
            operation()
    assert (tmp_path / "b").read_text() == "mine"


def test_a_verdict_of_a_foreign_bucket_cannot_be_copied_outside_the_root(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "root"))
    with pytest.raises(ValueError, match=r"'\.\.' is not allowed"):
        storage.replace("raw/_/0/verdicts/../../../../../home/verdict.json", b"{}")


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ("../../outside", []),
        (".work/shards/v-c/other/data-1", []),
        (".work/shards/v-c/s/data-1", ["../../../outside"]),
        ("/etc", ["passwd"]),
    ],
)
def test_a_shared_shard_record_that_points_elsewhere_is_refused(tmp_path: Path, data: str, paths: list[str]) -> None:
    shared = SharedShards(Storage(str(tmp_path / "root")), "v", "c")
    record = {"data": data, "files": [asdict(FileEntry(path, 5, None, "d")) for path in paths], "statistics": {}}
    shared.storage.create(f"{shared.address}/s/{RECORD_NAME}", json.dumps(record))
    with pytest.raises(ValueError, match=r"not allowed|must be a folder of"):
        shared.read(["s"])


def test_a_file_that_the_manifest_does_not_list_is_not_opened(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with writing(store, ArtifactSpec(("a",), None, "tests.a", "1", {})) as out:
        (out.folder / "text").write_text("x")
    assert out.artifact.file("text").read_text() == "x"
    for name in ("../manifest.json", "other", "/etc/passwd"):
        with pytest.raises(ValueError, match="has no file"):
            out.artifact.file(name)
        with pytest.raises(ValueError, match="has no file"):
            out.artifact.read_range(name, 0, 1)


def test_a_writer_refuses_a_file_name_that_no_reader_accepts(tmp_path: Path) -> None:
    (tmp_path / "a\\b").write_text("x")
    with pytest.raises(ValueError, match="backslashes are not allowed"):
        file_entry(tmp_path, tmp_path / "a\\b")


@given(st.text(st.sampled_from("ab./\\\n\x00é~"), max_size=12))
def test_an_accepted_name_stays_inside_its_folder_under_every_reading(name: str) -> None:
    try:
        check_relative(name, "file")
    except ValueError:
        return
    folder = Path("/somewhere/folder")
    assert (folder / name).resolve().is_relative_to(folder)
    assert folder / name != folder
    assert Path(name).as_posix() == name, "one spelling for one path"


def test_a_part_is_one_name() -> None:
    assert check_part("data-1", "data_folder") == "data-1"
    with pytest.raises(ValueError, match="'/' is not allowed"):
        check_part("a/b", "data_folder")


def test_the_edits_above_keep_the_data_version_sound() -> None:
    """`place` must fail by the name alone, so its data version has to be the one that a reader computes."""
    assert content_version((FileEntry("n", 5, None, "d"),)) == identity_digest([["n", 5, "d"]])
