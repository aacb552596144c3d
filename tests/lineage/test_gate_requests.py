"""Counted requests: the gate lists partitions of a key together and reads a text once for each state; a commit takes five; what
was made from an artifact is found without a listing of the root."""

import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import GcsServer

from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Artifact, Store
from lineage.graph.below import children_of, made_by
from lineage.storage.files import Listed
from lineage.storage.gs import BucketFiles
from lineage.trust.gate import inspect
from lineage.trust.verdicts import quarantine
from lineage.writing.write import writing
from marin_assets.cli.listing import artifact_rows

SOURCES = 12

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def write(store: Store, key: str, partition: str | None, *inputs: Artifact) -> Artifact:
    refs = tuple(artifact.ref(f"inputs.{i}") for i, artifact in enumerate(inputs))
    with writing(store, ArtifactSpec(("tests", key), partition, "tests.stage", "1", {}, refs)) as out:
        (out.folder / "data.bin").write_text(f"{key} {partition}")
    return out.artifact


@pytest.fixture(scope="module")
def written(gcs: GcsServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, list[Artifact]]:
    """A mixture of twelve caches, each of one raw source; 25 commits take .6 CPU s."""
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path_factory.mktemp("scratch")))
    raw = [write(store, "raw", f"s{i}") for i in range(SOURCES)]
    caches = [write(store, "cache", f"s{i}", source) for i, source in enumerate(raw)]
    return write(store, "mixture", None, *caches), raw


@pytest.fixture
def made(gcs: GcsServer, written: tuple[Artifact, list[Artifact]], tmp_path: Path) -> tuple[Artifact, list[Artifact]]:
    """The mixture and the sources of `written`, copied object by object into a bucket of their own."""
    mixture, raw = written
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    theirs, own = (each.root.removeprefix("gs://") for each in (mixture.store, store))
    with gcs.objects.lock:
        for (bucket, name), stored in list(gcs.objects.objects.items()):
            if bucket == theirs:
                gcs.objects.keep(own, name, stored)
    return replace(mixture, store=store), [replace(each, store=store) for each in raw]


def problems(store: Store, ref: InputRef) -> list[tuple[str, str]]:
    return [(finding.problem, finding.artifact) for finding in inspect(store, [ref], {})]


def test_partitions_are_listed_together_and_texts_are_read_once(gcs: GcsServer, made: tuple[Artifact, list[Artifact]]) -> None:
    mixture, _ = made
    gcs.counts.clear()
    assert problems(mixture.store, mixture.ref("x")) == []
    first = dict(gcs.counts)
    gcs.counts.clear()
    assert problems(mixture.store, mixture.ref("x")) == []
    assert first["list"] <= 5, "the log's, the mixture's, the caches', the sources', one to spare"
    assert first["read"] <= 2 * (1 + 2 * SOURCES), "a manifest and a signature each"
    assert gcs.counts["list"] == first["list"] and gcs.counts["read"] == 0


def test_at_the_next_gate_partitions_of_all_levels_are_listed_at_once(
    gcs: GcsServer, made: tuple[Artifact, list[Artifact]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches and sources are two levels: their listings are held until both are under way."""
    mixture, raw = made
    assert problems(mixture.store, mixture.ref("x")) == []
    together = threading.Barrier(2, timeout=60)
    listing_up_to = BucketFiles.listing_up_to

    def held(files: BucketFiles, prefix: str, most: int) -> dict[str, Listed] | None:
        together.wait()
        return listing_up_to(files, prefix, most)

    monkeypatch.setattr(BucketFiles, "listing_up_to", held)
    mixture.store.storage.delete(f"{raw[2].spec.address}/manifest.json")
    assert problems(mixture.store, mixture.ref("x")) == [("missing", "tests/raw[s2]")], "what is listed is of this gate"


@pytest.mark.parametrize("text", ["garbage", "[1]", '{"../x": ".."}', '{"/etc/x": "/etc"}', '{"tests/raw/s1": "tests"}', "{}"])
def test_what_was_remembered_of_the_last_gate_decides_nothing(made: tuple[Artifact, list[Artifact]], text: str) -> None:
    mixture, raw = made
    assert problems(mixture.store, mixture.ref("x")) == []
    (where,) = (path for path in (mixture.store.scratch / "gate").iterdir() if path.read_bytes().startswith(b'{"tests/'))
    where.write_text(text)
    quarantine(raw[1], "leaked", "ada")
    assert problems(mixture.store, mixture.ref("x")) == [("quarantined", "tests/raw[s1]")]


def test_a_manifest_that_was_written_again_is_read_again(gcs: GcsServer, made: tuple[Artifact, list[Artifact]]) -> None:
    """Equal size, other bytes: the generation differs."""
    mixture, raw = made
    store = mixture.store
    assert problems(store, mixture.ref("x")) == []
    where = f"{raw[3].spec.address}/manifest.json"
    text = store.storage.read_text(where)
    assert text is not None
    store.storage.replace(where, text.replace('"tests.stage"', '"tests.other"').encode())
    assert problems(store, mixture.ref("x")) == [("edited", "tests/raw[s3]")]
    store.storage.delete(where)
    assert problems(store, mixture.ref("x")) == [("missing", "tests/raw[s3]")]


def test_a_verdict_and_a_changed_file_are_found_again(gcs: GcsServer, made: tuple[Artifact, list[Artifact]]) -> None:
    mixture, raw = made
    assert problems(mixture.store, mixture.ref("x")) == []
    quarantine(raw[1], "leaked", "ada")
    mixture.store.storage.replace(f"{raw[2].spec.address}/{raw[2].manifest.data_folder}/data.bin", b"raw sX")
    assert problems(mixture.store, mixture.ref("x")) == [("quarantined", "tests/raw[s1]"), ("damaged", "tests/raw[s2]")]


def test_a_key_with_many_other_partitions_is_not_listed_whole(gcs: GcsServer, tmp_path: Path) -> None:
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    raw = [write(store, "raw", f"s{i}") for i in range(2)]
    mixture = write(store, "mixture", None, *raw)
    bucket = store.root.removeprefix("gs://")
    with gcs.objects.lock:
        stored = gcs.objects.objects[bucket, f"{raw[0].spec.address}/manifest.json"]
        for i in range(3_000):
            gcs.objects.keep(bucket, f"tests/raw/a{i}/v/manifest.json", stored)
    gcs.counts.clear()
    assert problems(store, mixture.ref("x")) == []
    assert gcs.counts["list"] <= 2 + 2 + 2, "log and mixture; at most two pages of the key; two partitions"


def test_a_commit_takes_five_requests_beside_its_data_files(gcs: GcsServer, tmp_path: Path) -> None:
    """Signature, entry of the commit log, manifest, the listing with the checksums, and the look for data of killed writers."""
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    gcs.counts.clear()
    with writing(store, ArtifactSpec(("tests", "many"), None, "tests.stage", "1", {})) as out:
        for number in range(7):
            (out.folder / f"{number}.bin").write_bytes(b"x")
    assert dict(gcs.counts) == {"upload": 7 + 3, "list": 2, "any": 7 + 5}


def test_children_are_found_without_a_listing_of_the_root(gcs: GcsServer, made: tuple[Artifact, list[Artifact]]) -> None:
    """3,000 manifests that the log does not know are three more pages of a root's listing; nobody asks for them."""
    mixture, raw = made
    assert len(children_of(raw[0])) == 1, "the first question makes the log"
    bucket = mixture.store.root.removeprefix("gs://")
    with gcs.objects.lock:
        stored = gcs.objects.objects[bucket, f"{raw[0].spec.address}/manifest.json"]
        for i in range(3_000):
            gcs.objects.keep(bucket, f"tests/other/a{i}/v/manifest.json", stored)
    gcs.counts.clear()
    assert [child.name for child in children_of(raw[0])] == ["tests/cache[s0]"]
    commits = 1 + 2 * SOURCES
    assert gcs.counts["list"] == 2, "entries and segments"
    assert gcs.counts["read"] == 1 + commits + 1 + 2, "marker, entries, the end of the segment, parent and child"
    gcs.counts.clear()
    assert len(made_by(mixture.store, "tests.stage")) == commits
    assert gcs.counts["list"] == 2, "a stage of any version is in the log too"
    gcs.counts.clear()
    assert {row["name"] for row in artifact_rows([mixture.store], "tests/raw[s1")} == {f"tests/raw[s{i}]" for i in (1, 10, 11)}
    assert dict(gcs.counts) == {"list": 1, "read": SOURCES, "any": 1 + SOURCES}, "of this key alone"


def test_ancestors_are_read_level_by_level(gcs: GcsServer, made: tuple[Artifact, list[Artifact]], monkeypatch) -> None:
    """Every read is held until as many are under way as a level has manifests, so the number of releases is the depth of
    sequential requests: two for 24 ancestors in two levels. One after another would never release the first."""
    mixture, _ = made
    depth = 0

    def release() -> None:
        nonlocal depth
        depth += 1

    together = threading.Barrier(SOURCES, release, timeout=60)
    read = BucketFiles.read

    def held(files: BucketFiles, name: str) -> bytes | None:
        together.wait()
        return read(files, name)

    monkeypatch.setattr(BucketFiles, "read", held)
    gcs.counts.clear()
    walked = [artifact.name for artifact in mixture.store.walk_up(mixture)]
    assert walked == ["tests/mixture", *(f"tests/{key}[s{i}]" for key in ("cache", "raw") for i in range(SOURCES))]
    assert depth == 2
    assert dict(gcs.counts) == {"read": 2 * SOURCES, "any": 2 * SOURCES}
