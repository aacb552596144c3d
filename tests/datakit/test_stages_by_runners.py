"""Data stages whose shards runners made: the bytes of one process, though nothing is fetched that a stage does not name.

A stage that reads a file of a lazy map without naming it would find no file here, or fewer of them.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from inputs import Texts, corpus, documents, duplicates, edited, file_bytes, made, quality, random_texts, source_of
from test_containment import node as contained_in
from test_contamination_stage import scan_of
from test_contamination_templates import CONFIG, QUESTIONS
from test_contamination_templates import texts as held_texts
from test_paragraphs import node as paragraphs_of
from test_semantic_duplicates import MANY, semantic
from test_semantic_duplicates import sources as topics

from datakit.contamination.gpt3 import GptPolicy
from datakit.corpus.build import CorpusConfig
from datakit.dedup.minhash import MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.sorted_runs import Cut
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.sources.raw import RAW
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.artifact.store import Artifact, Store
from lineage.build.fan_out import FanOut
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.build.shard_runner import Share, run_share
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from lineage.stage import Stage

TEXTS = random_texts(30, 60, seed=71)
SOURCE = Texts("here", (*TEXTS, TEXTS[0], "short lead"), part_bytes=5_000)
CORPUS_NODE = corpus(SOURCE, how=CorpusConfig(heldout_frac=0.3, target_part_bytes=4_000))
TOKENIZER_NODE = Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(vocab_size=300), {"corpora": (CORPUS_NODE,)})
RUNNERS = 2


def raw(folder: Path) -> Node:
    """Files of records in a folder of this machine, each a shard."""
    folder.mkdir(exist_ok=True)
    for i in range(4):
        lines = [json.dumps({"text": text}) for text in TEXTS[i : i + 12]]
        (folder / f"{i}.jsonl").write_text("\n".join(lines) + "\n")
    return Node(("raw",), "s", RAW, source_of(folder_files(folder, "*.jsonl")))


def folder_files(folder: Path, pattern: str) -> FolderFiles:
    unpinned = FolderFiles(str(folder), (pattern,), "0" * 32)
    return replace(unpinned, listing=listing_digest(folder_listing(unpinned, trainable=True, what="s")))


def normalized(folder: Path) -> Node:
    """Cut so that runs are merged twice: parts are made of merged runs."""
    cut = Cut(shard_bytes=3_000, run_bytes=3_000, block_bytes=40, fan_in=4)
    stage = Stage(NORMALIZE.name, NORMALIZE.version, partial(normalize, cut=cut))
    config = NormalizeConfig("s", Records("jsonl"), "prose", target_part_bytes=4_000)
    return Node(("normalized",), "s", stage, config, {"raw": raw(folder)})


def cache() -> Node:
    inputs = {"corpus": CORPUS_NODE, "tokenizer": TOKENIZER_NODE}
    return Node(("token_cache", "small"), "here", TOKEN_CACHE, TokenCacheConfig("here"), inputs)


def by_runners(root: Path, node: Node) -> tuple[Artifact, int]:
    """The node's artifact, its own shards by runners; also how many maps the runners did."""
    rounds: list[LaunchRequest] = []

    def launch(request: LaunchRequest) -> LaunchRecord:
        rounds.append(request)
        for index in range(request.indices):
            run_share(node.stage, node.config, read_job(request.job_path), Share(index, request.indices), quarantine=True)
        return LaunchRecord("here", "cpu", ())

    for parent in node.parents():
        made(root, parent)
    return build(Store(str(root)), node, fan_out=FanOut(launch, RUNNERS)).artifact, len(rounds)


def packed(folder: Path) -> Node:
    """A file of one member, whose lines are written as files first, and one of several, whose lines are counted."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), mtime=0))
    (folder / "b.jsonl.gz").write_bytes(b"".join(gzip.compress(line, mtime=0) for line in lines))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[::-1]), mtime=0))
    cut = Cut(shard_bytes=1_500, run_bytes=900, rewritten_bytes=1_600)
    return Node(
        ("normalized",),
        "s",
        Stage(NORMALIZE.name, NORMALIZE.version, partial(normalize, cut=cut)),
        NormalizeConfig("s", Records("jsonl", id=None), "prose", target_part_bytes=4_000),
        {"raw": Node(("raw",), "s", RAW, source_of(folder_files(folder, "*.gz")))},
    )


def rules() -> Node:
    prose = replace(SOURCE, domain="prose", line="prose")
    return Node(("rules",), "here", QUALITY_RULES, quality_rules_config("prose"), {"normalized": documents(prose)})


def scope() -> tuple[tuple[Texts, ...], tuple[Texts, ...]]:
    """Sources of near and exact copies, shared paragraphs and excerpts, in several parts; and those of an earlier scope."""
    near = [edited(text, seed=1, edits=1) for text in TEXTS]
    excerpts = [" ".join(text.split()[5:45]) for text in TEXTS[:6]]
    pairs = [f"{one}\n\n{other}" for one, other in pairwise(random_texts(26, 24, seed=73))]
    sources = {"a": [*TEXTS[:20], *pairs], "b": [*near[:15], *TEXTS[:8], *excerpts], "old": [*near[10:20], *TEXTS[20:]]}
    a, b, old = (Texts(name, tuple(texts), part_bytes=6_000) for name, texts in sources.items())
    return (a, b), (old,)


NODES: dict[str, tuple[Callable[[Path], Node], int]] = {
    "raw": (raw, 1),
    "normalized": (normalized, 3),
    "packed": (packed, 4),
    "quality": (lambda _: quality(SOURCE), 1),
    "rules": (lambda _: rules(), 1),
    "contamination": (lambda _: scan_of(held_texts(30), QUESTIONS, CONFIG, part_bytes=4_000), 3),
    "contamination of grams": (lambda _: scan_of(held_texts(3), QUESTIONS, GptPolicy(max_documents=2), part_bytes=4_000), 3),
    "corpus": (lambda _: CORPUS_NODE, 2),
    "cache": (lambda _: cache(), 1),
    "duplicates": (lambda _: duplicates(scope()[0], signed=MinHashConfig(bands=14, rows=2)), 8),
    "duplicates of a growing scope": (lambda _: duplicates(scope()[0], None, None, scope()[1]), 10),
    "paragraphs": (lambda _: paragraphs_of(scope()[0]), 4),
    "containment": (lambda _: contained_in(scope()[0]), 8),
    "semantic duplicates": (lambda _: semantic(topics(800), MANY), 8),
}
"""What makes a node, given a folder for files, and how many of its maps runners do at least."""


@pytest.mark.parametrize("name", NODES)
def test_runners_make_the_bytes_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 2_000)
    monkeypatch.setattr("lineage.tables.shuffle.MOST_OPENS", 30)
    make, maps = NODES[name]
    node = make(tmp_path / "files")
    whole = made(tmp_path / "whole", node)
    artifact, launched = by_runners(tmp_path / "by-runners", node)
    assert launched >= maps
    assert file_bytes(artifact) == file_bytes(whole)
    assert artifact.data_version == whole.data_version
    assert artifact.manifest.statistics == whole.manifest.statistics
    assert artifact.manifest.extra == whole.manifest.extra
    assert artifact.manifest.shards == whole.manifest.shards
