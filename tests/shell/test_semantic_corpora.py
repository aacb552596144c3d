"""Corpora without semantic duplicates: their nodes and assets. The default corpus has neither."""

from dataclasses import replace

from datakit.corpus.filters import CorpusConfig
from marin_assets.data import corpus_assets
from recipes import data
from recipes.studies.default import default_corpus

CORPUS = default_corpus()
DROPPING = replace(CORPUS, name="said-once", filters=CorpusConfig(drop_semantic_duplicates=True))


def test_a_corpus_that_drops_semantic_duplicates_reads_them_and_has_the_assets() -> None:
    node = data.corpus(DROPPING, "wiki")
    assert node.inputs["semantic_duplicates"] == data.semantic_duplicates(CORPUS.scope)
    keys = [asset.example.key for asset in corpus_assets(DROPPING)]
    assert ("semantic_duplicates", CORPUS.scope.name) in keys and ("datakit", "embeddings") in keys


def test_the_default_corpus_does_not() -> None:
    assert "semantic_duplicates" not in data.corpus(CORPUS, "wiki").inputs
    assert ("datakit", "embeddings") not in [asset.example.key for asset in corpus_assets(CORPUS)]
