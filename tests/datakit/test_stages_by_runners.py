"""Data stages whose shards runners made: the bytes of one process, though nothing is fetched that a stage does not name.

A stage that reads a file of a lazy map without naming it would find no file here, or fewer of them.
"""

import json
from functools import partial
from pathlib import Path

import pytest
from inputs import Texts, corpus, file_bytes, made, random_texts, source_of

from datakit.corpus.build import CorpusConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.sorted_runs import Cut
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
    unpinned = FolderFiles(str(folder), ("*.jsonl",), "0" * 32)
    listing = listing_digest(folder_listing(unpinned, trainable=True, what="s"))
    return Node(("raw",), "s", RAW, source_of(FolderFiles(str(folder), ("*.jsonl",), listing)))


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


@pytest.mark.parametrize(("name", "maps"), [("raw", 1), ("normalized", 3), ("corpus", 2), ("cache", 1)])
def test_runners_make_the_bytes_of_one_process(tmp_path: Path, name: str, maps: int) -> None:
    nodes = {
        "raw": lambda: raw(tmp_path / "files"),
        "normalized": lambda: normalized(tmp_path / "files"),
        "corpus": lambda: CORPUS_NODE,
        "cache": cache,
    }
    node = nodes[name]()
    whole = made(tmp_path / "whole", node)
    artifact, launched = by_runners(tmp_path / "by-runners", node)
    assert launched == maps
    assert file_bytes(artifact) == file_bytes(whole)
    assert artifact.data_version == whole.data_version
    assert artifact.manifest.statistics == whole.manifest.statistics
