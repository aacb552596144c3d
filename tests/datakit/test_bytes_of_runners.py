"""How many bytes of earlier maps runners and the committing process fetch, over a bucket that counts them."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gcs_server import GcsServer
from inputs import Texts, corpus, documents, duplicates, quality, random_texts, source_of
from test_containment import node as contained_in
from test_contamination_stage import scan_of
from test_contamination_templates import CONFIG, QUESTIONS, texts
from test_paragraphs import node as paragraphs_of
from test_semantic_duplicates import MANY, semantic
from test_semantic_duplicates import sources as topics
from test_stages_by_runners import folder_files, scope

from datakit.corpus.build import CorpusConfig
from datakit.dedup.minhash import MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.parts_of_tasks import rows_of_parts
from datakit.documents.sorted_runs import Cut
from datakit.sources.raw import RAW
from datakit.sources.source import Records
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.artifact.manifest import MANIFEST_NAME, FileEntry
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, spec_of
from lineage.build.plan import build
from lineage.build.shard_runner import Share, run_share
from lineage.jobs.job import Job
from lineage.shards.shared import RECORD_NAME, SHARED_FOLDER
from lineage.stage import Stage
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
    fetched = first_share(server, bucket, node, 0, len(parts))
    documents_made = next(build(bucket, parent).artifact for parent in node.parents() if parent.key[0] == "normalized")
    footers = sum(footer_bytes(documents_made, entry.path) for entry in parts)
    assert len(parts) > 4 and fetched == parts[0].bytes + footers + others


def test_a_runner_of_a_corpus_or_of_tokens_fetches_its_own_parts(server: GcsServer, bucket: Store) -> None:
    node = corpus(
        Texts("here", tuple(random_texts(300, 20, seed=3)), part_bytes=10_000), how=CorpusConfig(target_part_bytes=9_000)
    )
    inputs = {parent.key[-1]: built(bucket, parent) for parent in node.parents()}
    parts = [entry.path for entry in entries(inputs["normalized"], "documents/")]
    own = sum(
        entry.bytes for made in inputs.values() for entry in made.manifest.files if entry.path.endswith(Path(parts[1]).name)
    )
    assert len(parts) > 3 and first_share(server, bucket, node, 1, len(parts)) == own + footer_bytes(
        inputs["normalized"], parts[0]
    )

    tokenizer = Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(vocab_size=300), {"corpora": (node,)})
    tokens = Node(
        ("token_cache", "small"), "here", TOKEN_CACHE, TokenCacheConfig("here"), {"corpus": node, "tokenizer": tokenizer}
    )
    texts_made, vocabulary = built(bucket, node), built(bucket, tokenizer)
    train = entries(texts_made, "train/")
    whole = (
        train[0].bytes + train[1].bytes + sum(entry.bytes for entry in vocabulary.manifest.files)
    )  # [0]: the engine's sample
    footers = sum(footer_bytes(texts_made, entry.path) for entry in train)
    assert len(train) > 3 and first_share(server, bucket, tokens, 1, len(train)) == whole + footers


SCOPES = {
    "duplicates": lambda sources: duplicates(sources, signed=MinHashConfig(bands=14, rows=2)),
    "paragraphs": paragraphs_of,
    "containment": contained_in,
    "semantic duplicates": lambda _: semantic(topics(800), MANY),
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_runner_of_a_scope_fetches_its_own_parts_of_every_input(server: GcsServer, bucket: Store, name: str) -> None:
    """In no round of maps does a runner fetch a file of another runner's part."""
    sources, _ = scope()
    node = SCOPES[name](sources)
    inputs = [built(bucket, parent) for parent in node.parents()]
    documents_of = [made for made, parent in zip(inputs, node.parents(), strict=True) if parent.key[-1] == "normalized"]
    parts = [f"{artifact.spec.partition}/{part}" for artifact in documents_of for part in rows_of_parts(artifact)]
    machines = [replace(bucket, scratch_folder=f"{bucket.scratch}-{index}") for index in range(RUNNERS)]
    fetched, rounds, more = [set[str]() for _ in machines], 0, True
    while more:
        for index, machine in enumerate(machines):
            fetched[index] = fetched_parts(machine, inputs)
            share = Share(index, RUNNERS)
            more = run_share(node.stage, node.config, job_of(machine, node, fetched=False), share) is not None
        rounds += 1
    assert rounds >= 3 and len(parts) > 2 * RUNNERS
    assert fetched == [set(parts[index::RUNNERS]) for index in range(RUNNERS)]
    committed = build(bucket, node).artifact
    assert committed.manifest.statistics["rows_in"] == sum(sum(rows_of_parts(made).values()) for made in documents_of)


def test_runners_of_normalization_fetch_their_share_of_files_and_runs(server: GcsServer, bucket: Store, tmp_path: Path) -> None:
    """In every round all runners together fetch what there is, and files at the borders of their shares twice."""
    count = 3
    (tmp_path / "files").mkdir()
    for i in range(9):
        lines = [json.dumps({"text": text}) for text in random_texts(40, 20, seed=i)]
        (tmp_path / "files" / f"{i}.jsonl").write_text("\n".join(lines) + "\n")
    raw = Node(("raw",), "s", RAW, source_of(folder_files(tmp_path / "files", "*.jsonl")))
    cut = Cut(shard_bytes=3_000, run_bytes=600, block_bytes=40, fan_in=9)
    stage = Stage(NORMALIZE.name, NORMALIZE.version, partial(normalize, cut=cut))
    config = NormalizeConfig("s", Records("jsonl"), "prose", target_part_bytes=1_000)
    node = Node(("normalized",), "s", stage, config, {"raw": raw})
    files, rounds, more = entries(built(bucket, raw), "files/"), list[tuple[int, dict[str, int]]](), True
    while more:
        fetched, before = 0, bucket.storage.sizes(SHARED_FOLDER) if rounds else {}
        for index in range(count):
            machine = replace(bucket, scratch_folder=f"{bucket.scratch}-{len(rounds)}-{index}")
            job = job_of(machine, node, fetched=False)
            start = server.bytes_read
            more = run_share(stage, config, job, Share(index, count)) is not None
            fetched += server.bytes_read - start - sum(size for name, size in before.items() if name.endswith(RECORD_NAME))
        rounds.append((fetched, before))
    raw_bytes = sum(entry.bytes for entry in files)
    assert [fetched for fetched, _ in rounds[:2]] == [raw_bytes] * 2, "cuts and parsing"
    read, runs = rounds[-2][0], [{n: s for n, s in before.items() if n.endswith(".arrow")} for _, before in rounds]
    collapsed = sum(size for name, size in runs[-2].items() if name not in runs[-3])
    assert len(rounds) >= 5 and collapsed <= read <= 1.5 * collapsed, "merges"
    assert build(bucket, node).artifact.manifest.statistics["rows_out"] == 360


def test_a_part_with_other_bytes_than_its_manifest_lists_is_refused(bucket: Store) -> None:
    node = quality(Texts("here", tuple(random_texts(20, 20, seed=3))))
    texts_made = built(bucket, documents(Texts("here", tuple(random_texts(20, 20, seed=3)))))
    (part,) = entries(texts_made, "documents/")
    address = f"{texts_made.spec.address}/{texts_made.manifest.data_folder}/{part.path}"
    held = bucket.storage.read_bytes(address)
    assert held is not None
    bucket.storage.replace(address, held[:100] + bytes([held[100] ^ 1]) + held[101:])
    job = job_of(replace(bucket, scratch_folder=f"{bucket.scratch}-other"), node, fetched=False)
    with pytest.raises(ValueError, match=r"part-00000-of-00001.parquet has digest .* its manifest lists"):
        run_share(node.stage, node.config, job, Share(0, 1))


def fetched_parts(machine: Store, inputs: list[Artifact]) -> set[str]:
    """Source and name of every Parquet file of an input that a machine has."""
    source_of_version = {made.spec.version: made.spec.partition for made in inputs}
    found = set[str]()
    for path in (Path(machine.scratch) / "fetched").rglob("*.parquet"):
        version = path.relative_to(Path(machine.scratch) / "fetched").parts[0]
        found.add(f"{source_of_version[version] or path.parent.name}/{path.name}")
    return found


def built(store: Store, node: Node) -> Artifact:
    for parent in node.parents():
        built(store, parent)
    return build(store, node).artifact


def entries(artifact: Artifact, folder: str) -> list[FileEntry]:
    return sorted((e for e in artifact.manifest.files if e.path.startswith(folder)), key=lambda entry: entry.path)


def first_share(server: GcsServer, bucket: Store, node: Node, index: int, count: int) -> int:
    """Bytes that a machine without a cache fetches for its share of the first map."""
    machine = replace(bucket, scratch_folder=f"{bucket.scratch}-{uuid.uuid4().hex}")
    job = job_of(machine, node, fetched=False)
    return fetched_by(server, lambda: run_share(node.stage, node.config, job, Share(index, count)))


def footer_bytes(artifact: Artifact, name: str) -> int:
    data = artifact.file(name).read_bytes()
    return 8 + 4 + int.from_bytes(data[-8:-4], "little")
