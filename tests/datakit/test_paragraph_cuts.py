"""Cutting repeated paragraphs out of documents, against a slow reference."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, duplicates, made, marks, quality, random_texts

from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.paragraph_cuts import cut_text
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.invariants import check_corpus, check_rows_conserved
from lineage.build.nodes import Node
from lineage.storage.digests import text_digest

SHARED = random_texts(2, 30, seed=81)
OWN = random_texts(12, 40, seed=82)
FIRST = Texts("first", tuple(f"{own}\n\n{shared}" for own, shared in zip(OWN[:4], SHARED * 2, strict=True)))
SECOND = Texts("second", (*(f"{SHARED[i % 2]}\n\n{own}" for i, own in enumerate(OWN[4:])), SHARED[1]), part_bytes=1_500)
"""Blocks of lines without blank ones: every document of `SECOND` repeats one of `FIRST`, one is nothing else."""


def corpus_node(how, *names):
    scope = (FIRST, SECOND)
    spans = Node(
        ("paragraphs", "scope"),
        None,
        PARAGRAPHS,
        ParagraphsConfig(),
        {"normalized": tuple(map(documents, scope)), "duplicates": duplicates(scope)},
    )
    inputs = {
        "normalized": documents(SECOND),
        "quality": quality(SECOND),
        "contamination": marks(SECOND),
        "duplicates": duplicates(scope),
    }
    return Node(("corpus", "cut"), "second", CORPUS, how, inputs | dict.fromkeys(names, spans))


def test_a_corpus_cuts_what_stands_elsewhere_counts_it_and_drops_what_has_nothing_left(tmp_path):
    artifact = made(tmp_path, corpus_node(CorpusConfig(cut_paragraphs=True, heldout_frac=0.3), "paragraphs"))
    paths = artifact.files(".parquet", under="train/") + artifact.files(".parquet", under="heldout/")
    table = pl.concat([pl.read_parquet(path) for path in paths])
    kept = {text_digest(text): own for text, own in zip(SECOND.texts[:8], OWN[4:], strict=True)}
    assert dict(table.select("id", "text").iter_rows()) == kept
    assert all(json.loads(metadata)["cut"] for metadata in table["metadata"])
    statistics = artifact.manifest.statistics
    assert statistics["drops"] == {"only_repeated_paragraphs": 1} and statistics["cut_paragraphs"] == 8
    size = sum(len(text.encode()) for text in SECOND.texts)
    assert statistics["bytes_in"] == size
    assert statistics["bytes_out"] == sum(map(len, kept.values())) == size - statistics["cut_bytes"] - len(SHARED[1])
    assert check_corpus(artifact) == [] == check_rows_conserved(artifact)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_document_inside_others_is_dropped_as_a_whole(tmp_path, is_cut):
    """Of the others 40 % stand elsewhere: they stay whole unless paragraphs are cut, too."""
    how = CorpusConfig(max_repeated_share=0.5, cut_paragraphs=is_cut, heldout_frac=0.3)
    artifact = made(tmp_path, corpus_node(how, "paragraphs"))
    paths = artifact.files(".parquet", under="train/") + artifact.files(".parquet", under="heldout/")
    texts = sorted(pl.concat([pl.read_parquet(path) for path in paths])["text"])
    assert texts == sorted(OWN[4:] if is_cut else SECOND.texts[:8])
    assert artifact.manifest.statistics["drops"] == {"inside_others": 1}
    assert artifact.manifest.statistics.get("cut_paragraphs", 0) == 8 * is_cut
    assert check_corpus(artifact) == [] == check_rows_conserved(artifact)


def test_a_share_of_one_would_drop_nothing_and_is_refused():
    with pytest.raises(ValueError, match=r"max_repeated_share is 1.0; it must be in \[0, 1\)"):
        CorpusConfig(max_repeated_share=1.0)


def test_spans_are_given_if_and_only_if_they_are_cut(tmp_path):
    with pytest.raises(ValueError, match="filters read"):
        made(tmp_path, corpus_node(CorpusConfig(cut_paragraphs=True)))
    with pytest.raises(ValueError, match="filters read"):
        made(tmp_path, corpus_node(CorpusConfig(), "paragraphs"))


@given(st.lists(st.tuples(st.sampled_from(["one two", "three", "a\nb c", "é d"]), st.booleans()), max_size=6))
def test_cutting_blocks_leaves_the_other_blocks(blocks):
    text, spans, place = "\n\n".join(block for block, _ in blocks), [], 0
    for block, goes in blocks:
        spans += [(place, place + len(block))] if goes else []
        place += len(block) + 2
    assert cut_text(text, spans) == "\n\n".join(block for block, goes in blocks if not goes)
