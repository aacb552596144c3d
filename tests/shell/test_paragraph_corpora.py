"""Corpora that cut repeated paragraphs or drop contained documents: their nodes and assets."""

from dataclasses import replace

import pytest

from datakit.corpus.filters import CorpusConfig
from datakit.tokens.formats import Chat, Prebuilt
from marin_assets.data import corpus_assets
from recipes import data
from recipes.studies.default import default_corpus, tiny

CORPUS = default_corpus()
CUTTING = replace(CORPUS, name="cut", filters=CorpusConfig(cut_paragraphs=True))


def test_a_corpus_that_cuts_paragraphs_reads_them_and_has_the_asset() -> None:
    corpus = data.corpus(CUTTING, CORPUS.sources[0])
    assert corpus.inputs["paragraphs"] == data.paragraphs(CORPUS.scope)
    assert ("paragraphs", CORPUS.scope.name) in [asset.example.key for asset in corpus_assets(CUTTING)]


def test_a_corpus_that_drops_contained_documents_reads_them_and_has_the_asset() -> None:
    dropping = replace(CORPUS, name="whole", filters=CorpusConfig(drop_contained=True))
    assert data.corpus(dropping, CORPUS.sources[0]).inputs["containment"] == data.containment(CORPUS.scope)
    assert ("containment", CORPUS.scope.name) in [asset.example.key for asset in corpus_assets(dropping)]
    assert "containment" not in data.corpus(CORPUS, CORPUS.sources[0]).inputs


@pytest.mark.parametrize("format", [Chat("x", end_of_turn="<|end|>"), Prebuilt()])
def test_a_corpus_whose_tokens_are_not_of_the_text_cannot_cut_it(format: Chat | Prebuilt) -> None:
    """The cut would be in the text, and what is trained on would still hold it."""
    with pytest.raises(ValueError, match=f"corpus cut cut paragraphs out of texts, and format '{format.kind}' makes tokens of"):
        replace(tiny().tokens, corpus=CUTTING, format=format)


def test_the_default_corpus_does_not() -> None:
    assert "paragraphs" not in data.corpus(CORPUS, CORPUS.sources[0]).inputs
    assert ("paragraphs", CORPUS.scope.name) not in [asset.example.key for asset in corpus_assets(CORPUS)]
