"""Copies between roots, the region guard, and lifecycle rules of buckets."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from gcs_server import GcsServer

import lineage.upkeep.mirror
from lineage.artifact.locate import locate
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, exists, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Job, read_job, write_job
from lineage.jobs.regions import NOWHERE, ForeignReadError, dollars_per_gib, guard_reads
from lineage.jobs.summary import SUMMARIES
from lineage.stage import Stage
from lineage.storage.lifecycle import apply, merged, ttl_rules
from lineage.trust.gate import inspect
from lineage.trust.verdicts import quarantine, verdicts
from lineage.upkeep.mirror import mirror, provenance
from lineage.writing.write import writing
from lineage.writing.writer import Writer
from resources.stores import EXPIRING, FERRY_TTL_DAYS, lab_stores

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def family(store: Store) -> Artifact:
    """An artifact with two ancestors, one above the other."""
    made: list[Artifact] = []
    for name in ("raw", "corpus", "model"):
        inputs = tuple(parent.ref("input") for parent in made[-1:])
        with writing(store, ArtifactSpec((name,), None, f"tests.{name}", "1", {}, inputs)) as out:
            (out.folder / "sub").mkdir()
            (out.folder / "sub" / "data").write_bytes(name.encode() * 1000)
        made.append(out.artifact)
    return made[-1]


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "local"))


@pytest.fixture
def bucket(gcs: GcsServer, tmp_path: Path) -> Store:
    root = f"{gcs.bucket(uuid.uuid4().hex, 'EUROPE-WEST4')}/lab"
    return Store(root, scratch_folder=str(tmp_path / "scratch"))


def test_there_and_back_an_artifact_is_the_same(local: Store, bucket: Store, tmp_path: Path) -> None:
    model = family(local)
    copied = list(mirror(model, bucket, "me"))
    assert [(each.name, each.outcome) for each in copied] == [("raw", "copied"), ("corpus", "copied"), ("model", "copied")]
    there = bucket.find(model.spec)
    assert there is not None
    there.verify()
    assert there.manifest == model.manifest
    assert inspect(bucket, [there.ref("model")], {}) == [], "the gate finds every ancestor"
    note = provenance(there)
    assert note is not None
    assert (note.source, note.who) == (model.uri, "me")
    assert list((bucket.scratch / "mirroring").iterdir()) == [], "what was uploaded is not kept on this disk, too"
    back = Store(str(tmp_path / "back"))
    assert [each.outcome for each in mirror(there, back, "me")] == ["copied"] * 3
    texts = [store.storage.read_text(f"{model.spec.address}/manifest.json") for store in (local, bucket, back)]
    assert len(set(texts)) == 1
    assert [each.outcome for each in mirror(model, bucket, "me")] == ["was there"] * 3
    assert provenance(model) is None


def test_a_copy_of_a_quarantined_artifact_is_quarantined(local: Store, bucket: Store) -> None:
    model = family(local)
    list(mirror(model, bucket, "me"))
    quarantine(next(local.artifacts("raw")), "the licence was withdrawn", "me")
    list(mirror(model, bucket, "me"))
    findings = inspect(bucket, [model.ref("model")], {})
    assert [(each.problem, each.ref.key) for each in findings] == [("quarantined", ("raw",))]
    assert [v.why for v in verdicts(next(bucket.artifacts("raw")))] == ["the licence was withdrawn"]


def test_an_artifact_of_another_lab_is_copied_by_address_and_digest(local: Store, tmp_path: Path) -> None:
    model, mine = family(local), Store(str(tmp_path / "mine"))
    theirs = locate([local], model.spec.address)
    with pytest.raises(ValueError, match=f"has data version {theirs.data_version}, expected is {'0' * 32}; nothing was copied"):
        list(mirror(theirs, mine, "me", expected="0" * 32))
    assert list(mine.artifacts()) == []
    assert [each.outcome for each in mirror(theirs, mine, "me", expected=model.data_version)] == ["copied"] * 3
    copy = mine.find(model.spec)
    assert copy is not None and copy.data_version == model.data_version


@pytest.mark.parametrize("name", ["raw", "model"])
def test_one_changed_byte_is_refused_in_the_original_and_in_a_copy_that_exists(local: Store, tmp_path: Path, name: str) -> None:
    model, mine = family(local), Store(str(tmp_path / "mine"))
    list(mirror(model, mine, "me", expected=model.data_version))
    for damaged, into in ((mine, mine), (local, Store(str(tmp_path / "third")))):
        changed = next(damaged.artifacts(name)).file("sub/data")
        changed.chmod(0o644)
        changed.write_bytes(b"X" + changed.read_bytes()[1:])
        with pytest.raises(ValueError, match=f"{name}: file sub/data has digest"):
            list(mirror(model, into, "me", expected=model.data_version))
        assert into is mine or into.find(model.spec) is None


def test_another_manifest_at_the_address_is_refused_by_the_digest(local: Store, tmp_path: Path) -> None:
    """Somebody who can write the first lab's root puts other files there, with a manifest that fits them."""
    model = family(local)
    published, spec = model.data_version, model.spec
    local.delete(model)
    with writing(local, spec) as out:
        (out.folder / "data").write_bytes(b"other")
    with pytest.raises(ValueError, match=f"expected is {published}"):
        list(mirror(locate([local], spec.address), Store(str(tmp_path / "mine")), "me", expected=published))


def test_damaged_files_are_not_copied_and_a_killed_copy_is_made_again(local: Store, bucket: Store) -> None:
    raw = list(local.walk_up(family(local)))[-1]
    bucket.storage.create(f"{raw.spec.address}/{raw.manifest.data_folder}/half", "left by a killed copier")
    path = raw.files()[0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="file sub/data has digest"):
        list(mirror(raw, bucket, "me"))
    assert bucket.find(raw.spec) is None
    path.write_bytes(b"raw" * 1000)
    list(mirror(raw, bucket, "me"))
    assert list(bucket.storage.sizes(f"{raw.spec.address}/{raw.manifest.data_folder}")) == ["sub/data"]


@pytest.mark.parametrize("paused_in", ["verify", "private copy"])
@pytest.mark.parametrize("other", ["mirror", "writer"])
@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_a_copier_whose_lease_was_taken_over_harms_nothing(
    local: Store, bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, other: str, paused_in: str
) -> None:
    """It stood still for longer than its lease, and another committed meanwhile: the same files, or its own."""
    into = bucket if place == "bucket" else Store(str(tmp_path / "other"))
    raw = list(local.walk_up(family(local)))[-1]
    first = iter([True])

    def committed_by_another() -> None:
        if not next(first, False):
            return
        if other == "mirror":
            assert [each.outcome for each in mirror(raw, into, "quick")] == ["copied"]
        else:
            family(into)

    @contextmanager
    def taken_over(storage: object, name: str, who: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(check=lambda: None)

    verify, private_copy = Artifact.verify, lineage.upkeep.mirror._private_copy
    monkeypatch.setattr(lineage.upkeep.mirror, "lease", taken_over)
    if paused_in == "verify":
        monkeypatch.setattr(Artifact, "verify", lambda artifact: (verify(artifact), committed_by_another()))
    else:
        paused = lambda artifact, into: (committed_by_another(), private_copy(artifact, into))[1]  # noqa: E731
        monkeypatch.setattr(lineage.upkeep.mirror, "_private_copy", paused)
    list(mirror(raw, into, "paused"))
    monkeypatch.undo()
    there = into.find(raw.spec)
    assert there is not None
    there.verify()
    note = provenance(there)
    assert (note is not None and note.who) == ("quick" if other == "mirror" else False)
    folders = [name for name in into.storage.folders(raw.spec.address) if name.startswith("data-")]
    assert folders == [there.manifest.data_folder]


@pytest.mark.parametrize(
    ("bucket", "here", "dollars"),
    [
        ("US-CENTRAL1", "us-central1", 0.0),
        ("US-CENTRAL1", "us-east5", 0.02),
        ("US", "us-east5", 0.02),
        ("NAM4", "us-central1", 0.02),
        ("EUROPE-WEST4", "us-central1", 0.08),
        ("EU", "europe-west4", 0.02),
        ("ASIA-NORTHEAST1", "europe-west4", 0.08),
        ("EU", NOWHERE, 0.12),
    ],
)
def test_prices(bucket: str, here: str, dollars: float) -> None:
    assert dollars_per_gib(bucket, here) == dollars


def test_a_job_is_refused_what_lies_elsewhere(
    local: Store, bucket: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = family(bucket)
    gib = sum(entry.bytes for entry in model.manifest.files) / 2**30
    monkeypatch.delenv("MARIN_REGION", raising=False)
    guard_reads(bucket, "train", [model])
    assert "train in an unnamed place (MARIN_REGION is not set) would read" in caplog.text
    with monkeypatch.context() as little:
        little.setenv("MARIN_FOREIGN_READ_GIB", str(gib / 2))
        with pytest.raises(ForeignReadError, match=r"MARIN_REGION is not set.*Run it in europe-west4 and say so"):
            guard_reads(bucket, "train", [model])
    monkeypatch.setenv("MARIN_REGION", "us-central1")
    guard_reads(bucket, "train", [model])
    assert "within the budget of 10 GiB" in caplog.text
    monkeypatch.setenv("MARIN_FOREIGN_READ_GIB", str(gib / 2))
    with pytest.raises(ForeignReadError, match=r"train in us-central1 would read 0\.00 GiB .* in EUROPE-WEST4, about \$0\.00"):
        guard_reads(bucket, "train", [model])
    monkeypatch.setenv("MARIN_FOREIGN_READ_GIB", "10G")
    with pytest.raises(ValueError, match="MARIN_FOREIGN_READ_GIB is '10G'; it must be a number of GiB, such as 10"):
        guard_reads(bucket, "train", [model])
    monkeypatch.setenv("MARIN_REGION", "europe-west4")
    guard_reads(bucket, "train", [model])
    guard_reads(local, "train", [])


def test_jobs_runners_and_stages_in_the_step_stand_before_the_guard(
    bucket: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Above the budget none of them opens a byte; in the bucket's region all do."""
    raw = Node(("raw",), None, Stage("tests.raw", "1", write_thousand), "")
    below = Node(("below",), None, Stage("tests.below", "1", copy_one), "", {"raw": raw})
    monkeypatch.setenv("MARIN_REGION", "europe-west4")
    build(bucket, raw)
    job = Job(bucket, spec_of(bucket, below), {"raw": resolve(bucket, raw)}, "f", "")
    write_job(job, tmp_path / "job.json")
    monkeypatch.setenv("MARIN_REGION", "us-central1")
    monkeypatch.setenv("MARIN_FOREIGN_READ_GIB", "0")
    with pytest.raises(ForeignReadError, match="below in us-central1 would read"):
        read_job(tmp_path / "job.json")
    with pytest.raises(ForeignReadError, match="below in us-central1 would read"):
        build(bucket, below)
    assert not exists(bucket, below)
    monkeypatch.setenv("MARIN_REGION", "europe-west4")
    assert read_job(tmp_path / "job.json").inputs.keys() == {"raw"}
    assert build(bucket, below).artifact.manifest.statistics["rows_out"] == 1


def write_thousand(out: Writer, config: str) -> None:
    (out.folder / "text").write_bytes(b"x" * 1000)


def copy_one(out: Writer, config: str, raw: Artifact) -> None:
    (out.folder / "text").write_bytes(raw.files("text")[0].read_bytes())
    out.record(rows_out=1)


def test_lifecycle_rules_keep_what_others_wrote(gcs: GcsServer) -> None:
    root = f"{gcs.bucket(uuid.uuid4().hex)}/lab"
    others = {"action": {"type": "SetStorageClass", "storageClass": "NEARLINE"}, "condition": {"age": 90}}
    stale = ttl_rules(root, {"ttl-7d/ferry": 99})
    whole = {"action": {"type": "Delete"}, "condition": {"age": 8, "matchesPrefix": ["lab/ttl-7d/"]}}  # ours before 2026-11-26
    both = {"matchesPrefix": ["lab/ttl-7d/", "archive/"]}
    shared = [
        {"action": {"type": "SetStorageClass", "storageClass": "COLDLINE"}, "condition": {"age": 30, **both}},
        {"action": {"type": "Delete"}, "condition": {"age": 30, **both}},
        {"action": {"type": "Delete"}, "condition": {"age": 3, "isLive": False, "matchesPrefix": ["lab/ttl-7d/"]}},
    ]
    gcs.objects.buckets[root.split("/")[2]]["lifecycle"] = {"rule": [others, *shared, *stale, whole]}
    ours = ttl_rules(root, {"ttl-7d/ferry": 7})
    assert ours == [{"action": {"type": "Delete"}, "condition": {"age": 8, "matchesPrefix": ["lab/ttl-7d/ferry/"]}}]
    assert apply(root, ours) == merged([others, *shared, *stale, whole], ours) == [others, *shared, *ours]
    kept = gcs.objects.buckets[root.split("/")[2]]["lifecycle"]
    assert json.loads(json.dumps(kept)) == {"rule": [others, *shared, *ours]}
    with pytest.raises(ValueError, match="is no gs:// root"):
        apply("/tmp/lab", ours)


def test_no_rule_of_the_lab_deletes_records_of_attempts_or_verdicts() -> None:
    rules = ttl_rules("gs://bucket/lab", dict.fromkeys(EXPIRING, FERRY_TTL_DAYS))
    prefixes = [prefix for rule in rules for prefix in rule["condition"]["matchesPrefix"]]
    for store in lab_stores("gs://bucket/lab", "/tmp/x"):
        for folder in (SUMMARIES, ".operations/ledger", ".trust/log"):
            kept = f"{store.root}/{folder}/x".removeprefix("gs://bucket/")
            assert not kept.startswith(tuple(prefixes)), kept
        assert f"{store.root}/ferry/x".removeprefix("gs://bucket/").startswith(tuple(prefixes)) is ("ttl" in store.root)
    with pytest.raises(ValueError, match="a rule for the whole store ttl-7d would delete its records"):
        ttl_rules("gs://bucket/lab", {"ttl-7d": 7})
