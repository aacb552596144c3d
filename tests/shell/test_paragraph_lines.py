"""Lines with paragraph deduplication: their nodes and assets."""

from dataclasses import replace

import pytest

from datakit.corpus.build import CorpusConfig
from datakit.tokens.formats import Chat, Prebuilt
from marin_assets.data import whole_line_families
from recipes import data
from recipes.lab import default_line

LINE = default_line()
CUTTING = replace(LINE, corpus="cut", corpus_filters=CorpusConfig(cut_paragraphs=True))


def test_a_line_that_cuts_paragraphs_has_the_asset_and_its_corpora_read_it():
    corpus = data.corpus(CUTTING, LINE.sources[0])
    assert corpus.inputs["paragraphs"] == data.paragraphs(CUTTING)
    keys = [family.example.key for family in whole_line_families(CUTTING)]
    assert ("paragraphs", LINE.scope) in keys


@pytest.mark.parametrize("format", [Chat("x", end_of_turn="<|end|>"), Prebuilt()])
def test_a_line_whose_tokens_are_not_of_the_text_cannot_cut_it(format):
    """The cut would be in the text, and what is trained on would still hold it."""
    with pytest.raises(
        ValueError, match=f"its filters cut paragraphs out of texts, and format '{format.kind}' makes tokens of"
    ):
        replace(CUTTING, format=format)


def test_the_default_line_does_not():
    assert "paragraphs" not in data.corpus(LINE, LINE.sources[0]).inputs
    assert ("paragraphs", LINE.scope) not in [family.example.key for family in whole_line_families(LINE)]
