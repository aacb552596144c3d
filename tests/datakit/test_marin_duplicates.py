"""Deduplication as Marin's dupekit does it: cleaning, shingles, clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import edited, random_texts

from benchmarks.marin_duplicates import char_shingle_sets, clean_text, marin_removals
from lineage.storage.digests import text_digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hello,   World! This is a test.", "hello world this is a test"),
        ("   ", ""),
        ("  NAÏVE\u2003CAFÉ...  ", "naïve café"),
        ("ΟΣ", "ος"),
    ],
)
def test_cleaning_is_that_of_dupekits_own_tests(text, cleaned):
    assert clean_text(text) == cleaned


@given(st.lists(TEXT, max_size=6))
def test_texts_share_shingles_as_they_share_runs_of_five_characters(texts):
    shingles, bounds = char_shingle_sets(texts)
    sets = [set(shingles[bounds[i] : bounds[i + 1]].tolist()) for i in range(len(texts))]
    runs = [{t[i : i + 5] for i in range(max(1, len(t) - 4))} - {""} for t in texts]
    assert [len(s) for s in sets] == [len(r) for r in runs]
    assert all(len(a & b) == len(x & y) for a, x in zip(sets, runs, strict=True) for b, y in zip(sets, runs, strict=True))


def test_one_document_of_a_cluster_stays_and_clusters_are_transitive():
    chain = [random_texts(1, 400, seed=61)[0]]
    for step in range(8):
        chain.append(edited(chain[-1], seed=step, edits=4))
    others = random_texts(4, 400, seed=62)
    texts = [*chain, *others]
    ids = [text_digest(text) for text in texts]
    removed = marin_removals(ids, texts)
    assert set(ids[9:]).isdisjoint(removed) and min(ids[:9]) not in removed
    assert len(removed) >= 7  # neighbours have Jaccard .9 and more over characters; the ends of the chain far less
    shuffled = np.random.default_rng(0).permutation(len(ids)).tolist()
    assert set(marin_removals([ids[i] for i in shuffled], [texts[i] for i in shuffled])) == set(removed)


def test_no_documents_give_no_removals():
    assert marin_removals([], []) == []
