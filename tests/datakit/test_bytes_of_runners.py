"""How many bytes of earlier maps runners and the committing process fetch, over a bucket that counts them."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import GcsServer
from inputs import Texts, documents, quality, random_texts
from test_contamination_stage import scan_of
from test_contamination_templates import CONFIG, QUESTIONS, texts

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, spec_of
from lineage.build.plan import build
from lineage.build.shard_runner import Share, run_share
from lineage.jobs.job import Job
from lineage.shards.shared import RECORD_NAME, SHARED_FOLDER
from lineage.trust.fingerprint import stage_code

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
RUNNERS = 2


@pytest.fixture
def bucket(server: GcsServer, tmp_path: Path) -> Store:
    """All machines share the cache of inputs: what is counted is no input."""
    return Store(server.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))


def job_of(store: Store, node: Node, *, fetched: bool = True) -> Job:
    def made(parent: Node) -> Artifact:
        artifact = build(store, parent).artifact
        if fetched:
            artifact.folder()
        return artifact

    inputs = {name: tuple(map(made, given)) if isinstance(given, tuple) else made(given) for name, given in node.inputs.items()}
    code = stage_code(node.stage.module)
    return Job(store, spec_of(store, node), inputs, code.fingerprint, "", packages=tuple(code.packages))


def fetched_by(server: GcsServer, action: Callable[[], object]) -> int:
    before = server.bytes_read
    action()
    return server.bytes_read - before


def test_runners_fetch_their_own_documents_and_nobody_a_table_of_quality(server: GcsServer, bucket: Store) -> None:
    source = Texts("here", tuple(random_texts(600, 20, seed=3)), part_bytes=20_000)
    node, texts_made = quality(source), build(bucket, documents(source)).artifact
    parts = sorted(texts_made.manifest.files, key=lambda entry: entry.path)
    assert len(parts) > RUNNERS
    for index in range(RUNNERS):
        machine = replace(bucket, scratch_folder=f"{bucket.scratch}-{index}")
        job, share = job_of(machine, node, fetched=False), Share(index, RUNNERS)
        own = sum(entry.bytes for entry in parts[index::RUNNERS])
        assert fetched_by(server, lambda its=job, of=share: run_share(node.stage, node.config, its, of)) == own
    records = sum(size for name, size in bucket.storage.sizes(SHARED_FOLDER).items() if name.endswith(RECORD_NAME))
    committing = fetched_by(server, lambda: build(bucket, node))
    made = bucket.find(spec_of(bucket, node))
    assert made is not None and made.manifest.statistics["rows_out"] == 600
    written = sum(entry.bytes for entry in made.manifest.files)
    manifests = 2 * bucket.storage.sizes(texts_made.spec.address)[MANIFEST_NAME]
    assert committing < records + manifests + written / 4
    whole = build(replace(bucket, scratch_folder=f"{bucket.scratch}-whole", root=f"{bucket.root}/whole"), documents(source))
    assert build(whole.artifact.store, node).artifact.data_version == made.data_version, "one process fetches every part"


def test_a_runner_that_judges_pieces_again_fetches_their_tables_alone(server: GcsServer, bucket: Store) -> None:
    node = scan_of(texts(30), QUESTIONS, CONFIG, part_bytes=6_000)
    job = job_of(bucket, node)
    for index in (*range(RUNNERS), 0):  # the scan, and the one shard that finds the templates
        run_share(node.stage, node.config, job, Share(index, RUNNERS))
    there = bucket.storage.sizes(SHARED_FOLDER)
    records = sum(size for name, size in there.items() if name.endswith(RECORD_NAME))
    fetched = fetched_by(server, lambda: run_share(node.stage, node.config, job, Share(0, RUNNERS)))
    judged = {name.split("/judge-")[1].split("/")[0] for name in bucket.storage.sizes(SHARED_FOLDER) if "/judge-" in name}
    assert len(judged) > 1
    kinds = ("matches", "marks", "matched")
    named = {f"scanned/{kind}/{piece}.parquet" for piece in judged for kind in kinds} | {".scratch/templates.parquet"}
    own = sum(size for name, size in there.items() if name.endswith(tuple(named)))
    assert own <= fetched <= own + records
    assert own < (sum(there.values()) - records) / 2


def test_a_scan_for_items_fetches_its_own_documents_and_the_footers_of_others(server: GcsServer, bucket: Store) -> None:
    node = scan_of(texts(30), QUESTIONS, CONFIG, part_bytes=6_000)
    job_of(bucket, node)
    inputs = {spec.key[0]: build(bucket, spec).artifact.manifest.files for spec in node.parents()}
    parts = sorted(inputs["normalized"], key=lambda entry: entry.path)
    others = sum(entry.bytes for name, files in inputs.items() if name != "normalized" for entry in files)
    machine = replace(bucket, scratch_folder=f"{bucket.scratch}-other")
    job = job_of(machine, node, fetched=False)
    fetched = fetched_by(server, lambda: run_share(node.stage, node.config, job, Share(0, len(parts))))
    footers = sum(footer_bytes(bucket, node, entry.path) for entry in parts)
    assert len(parts) > 4 and fetched == parts[0].bytes + footers + others


def footer_bytes(store: Store, node: Node, name: str) -> int:
    normalized = next(build(store, parent).artifact for parent in node.parents() if parent.key[0] == "normalized")
    data = normalized.file(name).read_bytes()
    return 8 + 4 + int.from_bytes(data[-8:-4], "little")
