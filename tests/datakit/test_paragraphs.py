"""Repeated paragraphs: counts across documents and which copies are removed."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import Texts, documents, duplicates, edited, file_bytes, made, random_texts
from properties import examples

from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig, paragraphs
from datakit.text.word_kinds import ALONE, kind
from lineage.build.nodes import Node
from lineage.storage.digests import text_digest

FIVE = ParagraphsConfig(min_words=5)
BLOCKS = [text.replace("\n", " ") for text in random_texts(6, 8, seed=71)] + ["a short one", "two\nlines of six words here"]


def node(sources, how=FIVE):
    inputs = {"normalized": tuple(map(documents, sources)), "duplicates": duplicates(sources)}
    return Node(("paragraphs", "scope"), None, PARAGRAPHS, how, inputs)


def spans(artifact):
    """Source and id -> spans."""
    spans_of = {}
    for path in artifact.files(".parquet", under="spans/"):
        for document, starts, ends in pl.read_parquet(path).iter_rows():
            spans_of[path.parent.name, document] = list(zip(starts, ends, strict=True))
    return spans_of


def slow_blocks(text):
    """Lines joined until a blank one, with the whitespace around each block taken off."""
    place, block, at = 0, [], []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            block.append(line)
            at.append(place)
        elif block:
            joined = "\n".join(block)
            lead = len(joined) - len(joined.lstrip())
            yield at[0] + lead, at[0] + lead + len(joined.strip())
            block, at = [], []
        place += len(line) + 1


def num_words(text):
    """Between white space, or characters that are words by themselves, whichever are more."""
    return max(len(text.split()), sum(kind(character) == ALONE for character in text))


def slow_spans(sources, min_words):
    """The definition: documents in order, a set of what was seen. Copies of an earlier source leave as duplicates."""
    seen, there, spans_of = set(), set(), {}
    for source in sources:
        for text in sorted(set(source.texts), key=text_digest):
            cuts = []
            if text not in there:
                for start, end in slow_blocks(text):
                    if num_words(text[start:end]) >= min_words:
                        cuts += [(start, end)] if text[start:end] in seen else []
                        seen.add(text[start:end])
            there.add(text)
            spans_of[source.source, text_digest(text)] = cuts
    return spans_of


TEXT = st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=5).map("\n\n".join)


@given(st.text(st.sampled_from(list("ab \n\t\u2003é猫ไ。")), max_size=40), st.integers(1, 3))
def test_paragraphs_are_the_blocks_between_blank_lines(text, min_words):
    blocks = [(a, b) for a, b in slow_blocks(text) if num_words(text[a:b]) >= min_words]
    assert list(paragraphs(text, min_words)) == blocks


@settings(max_examples=examples(6))
@given(st.lists(TEXT, min_size=1, max_size=6), st.lists(TEXT, min_size=1, max_size=6))
def test_spans_are_those_of_walking_the_documents_with_a_set(tmp_path_factory, first, second):
    sources = (Texts("b", tuple(first), part_bytes=200), Texts("a", tuple(second), part_bytes=150))
    root = tmp_path_factory.mktemp("store")
    artifact = made(root, node(sources))
    near = pl.read_parquet(made(root, duplicates(sources)).file("duplicates.parquet")).filter(~pl.col("is_kept"), kind="near")
    if near.height == 0:
        assert spans(artifact) == slow_spans(sources, 5)


def test_what_only_a_removed_document_has_is_not_cut_elsewhere(tmp_path):
    """The removed near-copy would come first or second by its id; either way one document that stays keeps the paragraph."""
    long = random_texts(1, 300, seed=72)[0]
    both = [f"{long}\n\n{BLOCKS[0]}", f"{edited(long, seed=1)}\n\n{BLOCKS[0]}"]
    later = Texts("later", (f"{BLOCKS[0]}\n\n{BLOCKS[1]}",))
    sources = (Texts("first", tuple(both)), later)
    cut = spans(made(tmp_path, node(sources)))
    removed = max(map(text_digest, both))
    assert cut["first", removed] == [] and cut["later", text_digest(later.texts[0])] == [(0, len(BLOCKS[0]))]


def test_a_paragraph_without_spaces_is_cut_where_it_stands_again(tmp_path):
    again = "猫は窓の上で寝ている。犬は庭で骨を探している。"
    first, second = (Texts(name, (f"{again}\n\n{text}",)) for name, text in zip(("a", "b"), BLOCKS, strict=False))
    cut = spans(made(tmp_path, node((first, second))))
    assert cut["a", text_digest(first.texts[0])] == [] and cut["b", text_digest(second.texts[0])] == [(0, len(again))]


def test_ranges_and_workers_do_not_change_the_bytes(tmp_path, monkeypatch):
    texts = ["\n\n".join([*BLOCKS[i % 7 : i % 7 + 3], f"its own words number {i} and more"]) for i in range(30)]
    sources = (Texts("a", tuple(texts[:20]), part_bytes=900), Texts("b", tuple(texts[10:]), part_bytes=700))
    whole = made(tmp_path / "whole", node(sources))
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 500)
    cut = made(tmp_path / "cut", node(sources))
    assert whole.manifest.extra["paragraphs"]["repeated"] > 20 and file_bytes(whole) == file_bytes(cut)
    for source in sources:
        names = [path.name for path in made(tmp_path / "whole", documents(source)).files(".parquet")]
        assert [path.name for path in whole.files(".parquet", under=f"spans/{source.source}/")] == names


def test_a_bad_config_is_refused_by_name():
    with pytest.raises(ValueError, match=r"paragraphs\.min_words is 0"):
        ParagraphsConfig(min_words=0)
