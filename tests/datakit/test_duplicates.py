"""Near duplicates against all pairs: Jaccard threshold, clusters, which document is kept."""

import logging
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, duplicates, edited, file_bytes, made, minhash, random_texts

from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MinHashConfig, sign_texts
from datakit.dedup.near_duplicates import near_matches, whole_components
from datakit.documents.parts import document_paths
from datakit.text.shingles import jaccard, shingle_hashes
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.storage.digests import text_digest

PRESET = DuplicatesConfig()
SURE = MinHashConfig(bands=96, rows=1)
"""Misses a pair of Jaccard similarity 0.8 with probability 0.2**96: every pair that counts is a candidate."""

BASES = random_texts(4, 60, seed=11)


@st.composite
def small_corpora(draw):
    """Distinct texts, many of them edits of each other."""
    texts = set()
    for _ in range(draw(st.integers(1, 14))):
        base = draw(st.sampled_from(BASES))
        texts.add(edited(base, seed=draw(st.integers(0, 5)), edits=draw(st.integers(0, 4))))
    return sorted(texts)


def rows(artifact):
    return pl.read_parquet(artifact.file("duplicates.parquet"))


def dropped_ids(artifact):
    return set(rows(artifact).filter(~pl.col("is_kept"))["id"])


def found_matches(texts, config=PRESET, signed=SURE):
    """Document -> (the kept one, similarity), walked without files."""
    ordered = sorted((t for t in texts if shingle_hashes(t, 5).size), key=text_digest)
    bands, _ = sign_texts(ordered, signed)
    sets = [shingle_hashes(text, 5) for text in ordered]
    pairs, _ = near_matches(bands, sets.__getitem__, config.min_jaccard, config.max_band_documents)
    return {text_digest(ordered[i]): (text_digest(ordered[k]), similarity) for i, k, similarity in pairs}


def kept_for(matches):
    return {document: kept for document, (kept, _) in matches.items()}


def all_pairs(texts, threshold):
    """Star removal by comparing everything with everything: (dropped, kept) ids."""
    sets = {text_digest(text): shingle_hashes(text, 5) for text in texts}
    kept, matches = [], {}
    for document in sorted(sets):
        match = next((k for k in kept if jaccard(sets[document], sets[k]) >= threshold), None)
        if match is None:
            kept.append(document)
        else:
            matches[document] = match
    return matches


@given(small_corpora(), st.sampled_from([0.5, 0.8, 1.0]))
def test_the_matches_are_those_of_comparing_every_pair(texts, threshold):
    matches = found_matches(texts, DuplicatesConfig(min_jaccard=threshold))
    assert kept_for(matches) == all_pairs(texts, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 1.0])
def test_in_dense_neighbourhoods_too(threshold):
    """Here most documents repeat some that stay and some that leave, and an upper-case copy repeats its text exactly."""
    texts = {edited(base, seed=seed, edits=edits) for base in BASES[:2] for seed in range(6) for edits in range(4)}
    texts |= {text.upper() for text in BASES}
    matches = found_matches(sorted(texts), DuplicatesConfig(min_jaccard=threshold))
    assert kept_for(matches) == all_pairs(texts, threshold) != {}


@given(small_corpora(), st.randoms())
def test_the_order_of_the_documents_does_not_matter(texts, random):
    shuffled = list(texts)
    random.shuffle(shuffled)
    assert found_matches(shuffled) == found_matches(texts)


@given(small_corpora())
def test_what_is_kept_has_no_duplicates_left(texts):
    gone = found_matches(texts)
    assert found_matches([text for text in texts if text_digest(text) not in gone]) == {}


def test_a_document_leaves_only_for_one_that_stays(tmp_path):
    """Each text repeats its neighbours but not those further away; a chain must not take all of them."""
    chain = [BASES[0]]
    for step in range(12):
        chain.append(edited(chain[-1], seed=step))
    made_here = made(tmp_path, duplicates((Texts("chain", tuple(chain)),), signed=SURE))
    table = rows(made_here)
    kept, gone = table.filter(pl.col("is_kept")), table.filter(~pl.col("is_kept"))
    assert gone.height > 0 and kept.height > 1 and not set(kept["id"]) & set(gone["id"])
    text_of = {text_digest(text): text for text in chain}
    for row in gone.iter_rows(named=True):
        assert row["matched_id"] in set(kept["id"]) and row["cluster_id"] == row["matched_id"]
        exact = jaccard(shingle_hashes(text_of[row["id"]], 5), shingle_hashes(text_of[row["matched_id"]], 5))
        assert exact == row["jaccard"] >= 0.8


def test_planted_near_duplicates_are_found_under_the_preset(tmp_path):
    """One or two words of 200 changed: Jaccard 0.90 to 0.95, where 14 bands of 8 rows miss 0.04 % at the worst."""
    originals = random_texts(60, 200, seed=12)
    copies = [edited(text, seed=i, edits=1 + i % 2) for i, text in enumerate(originals)]
    artifact = made(tmp_path, duplicates((Texts("a", tuple(originals)), Texts("b", tuple(copies)))))
    statistics = artifact.manifest.statistics
    assert 59 <= statistics["drops"]["near_duplicate"] <= 60
    assert statistics["rows_in"] == 120 == statistics["rows_out"] + statistics["drops"]["near_duplicate"]
    assert rows(artifact)["cluster_id"].n_unique() == statistics["drops"]["near_duplicate"]


def test_of_equal_texts_the_first_declared_source_keeps_its_own(tmp_path):
    shared = random_texts(3, 40, seed=13)
    first, second = Texts("first", tuple(shared)), Texts("second", (*shared[:2], *random_texts(2, 40, seed=14)))
    table = rows(made(tmp_path, duplicates((first, second))))
    assert table.height == 4 and set(table["kind"]) == {"exact"}
    assert set(table.filter(pl.col("is_kept"))["source"]) == {"first"}
    assert set(table.filter(~pl.col("is_kept"))["source"]) == {"second"}
    turned = rows(made(tmp_path, duplicates((second, first))))
    assert set(turned.filter(pl.col("is_kept"))["source"]) == {"second"}


def test_every_copy_of_a_near_duplicate_goes_with_it(tmp_path):
    original, changed = sorted([BASES[1], edited(BASES[1], seed=1)], key=text_digest)
    sources = (Texts("a", (original, changed)), Texts("b", (changed,)), Texts("c", (original,)))
    table = rows(made(tmp_path, duplicates(sources, signed=SURE)))
    assert set(table["cluster_id"]) == {text_digest(original)} and table.height == 4
    assert table.filter(pl.col("is_kept")).select("source", "id").rows() == [("a", text_digest(original))]
    assert set(table.filter(pl.col("id") == text_digest(changed))["kind"]) == {"near"}
    assert set(table["matched_id"]) == {text_digest(original)}


def test_texts_too_short_for_a_shingle_are_never_near_duplicates(tmp_path):
    artifact = made(tmp_path, duplicates((Texts("a", ("one two three", "One two three!", "one two three four")),)))
    assert rows(artifact).height == 0 and artifact.manifest.statistics["rows_out"] == 3


def test_which_source_a_text_is_in_does_not_change_what_is_kept(tmp_path):
    texts = [edited(base, seed=i, edits=i % 2) for base in BASES for i in range(4)]
    one, two = Texts("one", tuple(texts[:8])), Texts("two", tuple(texts[8:]))
    mixed = Texts("one", tuple(texts[::2])), Texts("two", tuple(texts[1::2]))
    gone = [
        dropped_ids(made(tmp_path / str(i), duplicates(sources, signed=SURE)))
        for i, sources in enumerate([(one, two), (two, one), mixed])
    ]
    assert gone[0] == gone[1] == gone[2] != set()


def test_a_giant_band_is_cut_and_says_so(tmp_path, caplog):
    texts = [edited(BASES[2], seed=i, edits=30) for i in range(12)]
    one_kept = DuplicatesConfig(max_band_documents=1)
    with caplog.at_level(logging.WARNING):
        artifact = made(tmp_path, duplicates((Texts("a", tuple(texts)),), one_kept, MinHashConfig(bands=64, rows=1)))
    assert "max_band_documents 1" in caplog.text and artifact.manifest.extra["full_bands"] > 0 == rows(artifact).height


def test_only_ids_of_the_documents_are_named(tmp_path):
    source = Texts("a", tuple(edited(BASES[0], seed=i) for i in range(5)))
    known = set(pl.read_parquet(made(tmp_path, documents(source)).files(".parquet")[0])["id"])
    assert set(rows(made(tmp_path, duplicates((source,), signed=SURE)))["id"]) <= known


@pytest.mark.parametrize(
    "bad",
    [{"min_jaccard": 0.0}, {"min_jaccard": 1.1}, {"ngram_words": 0}, {"max_band_documents": 0}, {"max_removed_share": 1.5}],
)
def test_a_bad_config_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"duplicates.{next(iter(bad))} is"):
        DuplicatesConfig(**bad)


def three_sources():
    texts = [edited(base, seed=seed, edits=seed % 3) for base in BASES for seed in range(5)]
    return (
        Texts("b", tuple(texts[:12]), part_bytes=4_000),
        Texts("a", (*texts[8:], BASES[3].upper(), "too short"), part_bytes=3_000),
        Texts("c", (*texts[::3], "too short"), part_bytes=4_000),
    )


def test_the_table_is_that_of_comparing_everything_with_everything(tmp_path):
    sources = three_sources()
    artifact = made(tmp_path, duplicates(sources, signed=SURE))
    holders = {}
    for source in sources:
        for text in source.texts:
            holders.setdefault(text_digest(text), []).append(source.source)
    near = all_pairs({text for source in sources for text in source.texts}, 0.8)
    kept = {i for i, names in holders.items() if len(set(names)) > 1} | set(near.values())
    wanted = set()
    for document in kept | set(near):
        for place, name in enumerate(dict.fromkeys(holders[document])):
            wanted.add((name, document, near.get(document, document), place == 0 and document not in near))
    table = rows(artifact)
    assert set(table.select("source", "id", "cluster_id", "is_kept").iter_rows()) == wanted and table.height == len(wanted)
    assert table.equals(table.sort("cluster_id", "id", "source")) and table["matched_id"].equals(table["cluster_id"])
    by_source = artifact.manifest.extra["duplicates"]["sources"]
    assert list(by_source) == ["b", "a", "c"]
    gone = table.filter(~pl.col("is_kept"))
    for source in sources:
        counts = by_source[source.source]
        assert counts["documents"] == len(set(source.texts))
        assert counts["exact"] + counts["near"] == gone.filter(pl.col("source") == source.source).height


def test_the_clusters_of_each_part_are_those_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 1_000)
    artifact = made(tmp_path, duplicates(three_sources(), signed=SURE))
    table, num_parts = rows(artifact), 0
    for source in three_sources():
        folder = artifact.below(f"clusters/{source.source}")
        parts = document_paths(made(tmp_path, documents(source)))
        assert sorted(path.name for path in folder.iterdir()) == [path.name for path in parts]
        for path in parts:
            ids = pl.read_parquet(path, columns=["id"])["id"]
            own = table.filter(pl.col("id").is_in(ids.implode()), source=source.source).sort("id")
            assert pl.read_parquet(folder / path.name).equals(own.select("id", "cluster_id", "is_kept"))
        num_parts += len(parts)
    assert num_parts > len(three_sources())


def test_however_the_joins_and_the_walks_are_cut_the_bytes_are_the_same(tmp_path, monkeypatch):
    whole = made(tmp_path / "whole", duplicates(three_sources(), signed=SURE))
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 30_000)
    monkeypatch.setattr("datakit.dedup.near_duplicates.WALKED_ROWS", 3)
    monkeypatch.setattr("datakit.dedup.duplicates.SMALL_SCOPE_ROWS", 0)
    node = duplicates(three_sources(), signed=SURE)
    for parent in node.parents():
        made(tmp_path / "two", parent)
    by_two = build(Store(str(tmp_path / "two")), node, execution=Execution(2)).artifact
    assert rows(whole).height and file_bytes(whole) == file_bytes(by_two)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 12))
def test_batches_of_a_walk_are_whole_components_of_about_a_size(roots, most):
    with mock.patch("datakit.dedup.near_duplicates.WALKED_ROWS", most):
        found = [batch.tolist() for batch in whole_components(np.array(roots, np.int64))]
    assert sorted(row for batch in found for row in batch) == list(range(len(roots)))
    components = [{roots[row] for row in batch} for batch in found]
    assert sum(map(len, components)) == len(set(roots)), "no component is cut"
    for batch, held in zip(found, components, strict=True):
        assert len(batch) < most + max(roots.count(root) for root in held)


def test_signatures_of_other_documents_are_refused(tmp_path):
    old, new = Texts("a", (BASES[0], edited(BASES[0], seed=1)), line="old"), Texts("a", (BASES[0], BASES[2]))
    inputs = {"normalized": (documents(new),), "minhash": (minhash(old),)}
    with pytest.raises(IncompleteError, match="has other ids than"):
        made(tmp_path, Node(("duplicates", "scope"), None, DUPLICATES, PRESET, inputs))


def test_signatures_of_two_presets_are_refused(tmp_path):
    a, b = Texts("a", (BASES[0],)), Texts("b", (BASES[0],))
    inputs = {"normalized": (documents(a), documents(b)), "minhash": (minhash(a), minhash(b, SURE))}
    with pytest.raises(ValueError, match="different configs cannot be compared"):
        made(tmp_path, Node(("duplicates", "scope"), None, DUPLICATES, PRESET, inputs))


def test_signatures_over_other_runs_of_words_are_refused(tmp_path):
    """Documents of three words, signed over two and compared over five, were a division by zero."""
    short = Texts("short", ("three short words", "three short words more"))
    with pytest.raises(ValueError, match=r"duplicates.ngram_words is 5, .* was signed over 2; give both one number"):
        made(tmp_path, duplicates((short,), signed=MinHashConfig(2, 1, ngram_words=2)))


def test_a_source_that_is_given_twice_is_refused(tmp_path):
    """Each of its documents would repeat itself: the table would keep and drop one id."""
    texts = Texts("twice", BASES[:2])
    with pytest.raises(ValueError, match=r"datakit/normalized\[twice\] is given 2 times.*give each source once"):
        made(tmp_path, duplicates((texts, texts)))
