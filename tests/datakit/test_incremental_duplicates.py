"""Duplicates of a scope that has earlier ones, against a slow reference: what they kept stays, new documents leave."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, duplicates, edited, file_bytes, made, marks, random_texts

from datakit.corpus.build import CORPUS, CorpusConfig, split_of
from datakit.corpus.removals import REMOVALS, Removal, RemovalsConfig, read_removed
from datakit.dedup import earlier
from datakit.dedup.band_join import Spilled
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MinHashConfig, sign_texts
from datakit.dedup.near_duplicates import near_matches
from datakit.dedup.scope_parts import ScopePart
from datakit.documents.parts import read_documents
from datakit.removal_rates import check_removal_rates
from datakit.text.arrays import load, save
from datakit.text.shingles import jaccard, shingle_hashes
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.storage.digests import text_digest

PRESET, LOOSE = DuplicatesConfig(), DuplicatesConfig(min_jaccard=0.6)
SURE = MinHashConfig(bands=96, rows=1)
"""Every pair that counts is a candidate."""

BASES = random_texts(4, 60, seed=31)
ALONE = random_texts(1, 40, seed=32)[0]
POOL = [
    *dict.fromkeys(edited(base, seed=seed, edits=edits) for base in BASES for seed in range(3) for edits in range(4)),
    "too short",
    ALONE,
]
"""Texts, many of them edits of each other, one too short for a shingle, and one without a relative."""


def chain_of(seed):
    """Three scopes of two, one and one source, in several parts."""
    generator = np.random.default_rng(seed)
    sources = [
        Texts(name, tuple(POOL[i] for i in generator.choice(len(POOL), 12, replace=False)), part_bytes=2_000) for name in "dbca"
    ]
    return (sources[0], sources[1]), (sources[2],), (sources[3],)


def removed_by_reference(chain, threshold=0.8):
    """Compare everything with everything, scope by scope; return (source, removed id) -> the kept id that it repeats."""
    kept, removed = [], {}
    for scope in chain:
        kept.sort()
        settled = set(kept)
        holders = {}
        for source in scope:
            for text in set(source.texts):
                holders.setdefault(text_digest(text), (text, []))[1].append(source.source)
        for document in sorted(holders):
            text, names = holders[document]
            match = document if document in settled else first_near(text, kept, threshold)
            if match is None:
                kept.append(document)
            removed |= {(name, document): match or document for name in (names if match else names[1:])}
    return removed


SETS = {text_digest(text): shingle_hashes(text, 5) for text in POOL}


def first_near(text, kept, threshold):
    own = SETS[text_digest(text)]
    return next((k for k in kept if own.size and SETS[k].size and jaccard(own, SETS[k]) >= threshold), None)


def searched(sources, *earlier):
    return duplicates(sources, PRESET, SURE, *earlier)


def rows(artifact):
    return pl.read_parquet(artifact.file("duplicates.parquet"))


def removed_rows(artifact):
    gone = rows(artifact).filter(~pl.col("is_kept"))
    return {(source, identity): kept for source, identity, kept in gone.select("source", "id", "cluster_id").iter_rows()}


@given(
    st.lists(st.sampled_from(POOL), unique=True), st.lists(st.sampled_from(POOL), unique=True), st.sampled_from([0.5, 0.8, 1.0])
)
def test_new_documents_are_compared_with_all_that_stay_and_earlier_ones_stay(old, new, threshold):
    scopes = (Texts("old", tuple(old)),), (Texts("new", tuple(new)),)
    gone = {document for _, document in removed_by_reference(scopes[:1], threshold)}
    settled = sorted(d for d in map(text_digest, old) if d not in gone and SETS[d].size)
    opened = sorted(d for d in map(text_digest, new) if d not in settled and SETS[d].size)
    texts = {text_digest(text): text for text in POOL}
    ordered = [*settled, *opened]
    bands, _ = sign_texts([texts[d] for d in ordered], SURE)
    found, _ = near_matches(bands, lambda i: SETS[ordered[i]], threshold, 256, len(settled))
    wanted = {d: k for (name, d), k in removed_by_reference(scopes, threshold).items() if name == "new" and d != k}
    assert {ordered[i]: ordered[k] for i, k, _ in found} == wanted


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_a_chain_of_scopes_removes_what_comparing_everything_removes(tmp_path, seed):
    chain = chain_of(seed)
    nodes = [searched(scope, *chain[:i]) for i, scope in enumerate(chain)]
    store = Store(str(tmp_path))
    first = build_all(store, nodes[:1])[0]
    held = [file_bytes(each) for each in (first, *store.parents(first))]
    made_after = build_all(store, nodes)
    assert made_after[0] == first and held == [file_bytes(each) for each in (first, *store.parents(first))]
    for i, artifact in enumerate(made_after):
        names = [source.source for source in chain[i]]
        wanted = {of: kept for of, kept in removed_by_reference(chain[: i + 1]).items() if of[0] in names}
        assert removed_rows(artifact) == wanted != {}
        statistics = artifact.manifest.statistics
        assert statistics["rows_in"] == sum(len(set(source.texts)) for source in chain[i])
        assert statistics["rows_in"] - statistics["rows_out"] == len(wanted)
        assert list(artifact.manifest.extra["duplicates"]["sources"]) == names
        assert {path.parent.name for path in artifact.files(".parquet", under="clusters/")} == set(names)


@pytest.mark.slow
def test_however_it_is_cut_the_bytes_are_the_same_and_what_was_there_stays(tmp_path, monkeypatch):
    old, new, _ = chain_of(1)
    (before, whole), cut = build_all(Store(str(tmp_path)), (searched(old), searched(new, old))), Store(str(tmp_path / "two"))
    held = {each.name: file_bytes(each) for each in (before, *before.store.parents(before))}
    assert removed_rows(whole)
    build_all(cut, searched(new, old).parents())
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 30_000)
    monkeypatch.setattr("datakit.dedup.duplicates.SMALL_SCOPE_ROWS", 0)
    by_two = build(cut, searched(new, old), execution=Execution(2)).artifact
    assert file_bytes(whole) == file_bytes(by_two)
    again = build(before.store, searched(old)).artifact
    assert held == {each.name: file_bytes(each) for each in (again, *again.store.parents(again))}
    assert again.data_version == before.data_version


def chained_texts():
    """One text, a repetition of it that leaves for it, and a repetition of the second that is none of the first."""
    kept, middle = sorted((edited(BASES[0], seed=seed) for seed in (50, 51)), key=text_digest)
    near = lambda one, other: jaccard(shingle_hashes(one, 5), shingle_hashes(other, 5)) >= 0.6  # noqa: E731
    edits = (edited(middle, seed=seed, edits=2) for seed in range(60, 99))
    return kept, middle, next(text for text in edits if near(text, middle) and not near(text, kept))


def test_only_what_stayed_wins_and_the_kind_and_the_keeper_are_named(tmp_path):
    """A text that repeats a removed one alone stays; a copy of the removed one leaves, for what that repeats."""
    kept, middle, far = chained_texts()
    old, new = Texts("old", (kept, middle)), Texts("new", (far, middle, kept, ALONE))
    first, artifact = build_all(
        Store(str(tmp_path)), (duplicates((old,), LOOSE, SURE), duplicates((new,), LOOSE, SURE, (old,)))
    )
    assert removed_rows(first) == {("old", text_digest(middle)): text_digest(kept)}
    assert removed_rows(artifact) == {("new", text_digest(text)): text_digest(kept) for text in (kept, middle)}
    table = rows(artifact)
    assert table.filter(pl.col("is_kept")).select("source", "id").rows() == [("old", text_digest(kept))]
    assert dict(table.select("id", "kind").iter_rows())[text_digest(middle)] == "near"


def test_the_split_follows_the_kept_document_and_a_removal_list_its_cluster(tmp_path):
    kept, middle, _ = chained_texts()
    repeats = [edited(kept, seed=seed) for seed in range(70, 78)]
    old, new = Texts("old", (kept, middle)), Texts("new", (*repeats, ALONE))
    listed = Node(("removals", "r"), None, REMOVALS, RemovalsConfig((Removal((text_digest(middle),), "request 1"),)), {})
    node = duplicates((new,), LOOSE, SURE, (old,))
    how = CorpusConfig(drop_duplicates=False, drop_low_quality=False, heldout_frac=0.5)
    inputs = {"normalized": documents(new), "contamination": marks(new), "duplicates": node}
    corpus, artifact, removals = build_all(
        Store(str(tmp_path)), (Node(("corpus", "c"), "new", CORPUS, how, inputs), node, listed)
    )
    assert removed_rows(artifact) == {("new", text_digest(text)): text_digest(kept) for text in repeats}
    split = split_of(text_digest(kept), how)
    assert set(map(text_digest, repeats)) <= set(read_documents(corpus, split)["id"])
    assert read_removed(removals, artifact).clusters == (text_digest(kept),), "named by the earlier scope alone"
    (violation,) = check_removal_rates(artifact)
    assert violation.startswith("new: 8 of 9") and f"took 8 for {text_digest(kept)} of old ({kept[:20]!r}"[:-1] in violation


def test_a_repetition_at_the_threshold_leaves_and_one_below_stays(tmp_path):
    old, new = Texts("old", (BASES[0], BASES[1])), Texts("new", (edited(BASES[0], seed=3), edited(BASES[1], seed=3, edits=2)))
    close, far = (jaccard(shingle_hashes(a, 5), shingle_hashes(b, 5)) for a, b in zip(old.texts, new.texts, strict=True))
    assert far < close
    how = DuplicatesConfig(min_jaccard=close)
    assert set(removed_rows(made(tmp_path, duplicates((new,), how, SURE, (old,))))) == {("new", text_digest(new.texts[0]))}


def test_a_source_without_documents_and_an_earlier_one_that_no_scope_searched_are_refused(tmp_path):
    empty, old, other = Texts("empty", ()), Texts("old", (ALONE,)), Texts("other", (BASES[0],))
    with pytest.raises(ValueError, match=r"datakit/normalized\[empty\] has no documents"):
        made(tmp_path, searched((empty,), (old,)))
    inputs = dict(searched((other,), (old,)).inputs) | {"earlier_duplicates": (searched((other,)),)}
    with pytest.raises(ValueError, match="no earlier scope has looked for duplicates in old"):
        made(tmp_path, Node(("duplicates", "new"), None, DUPLICATES, PRESET, inputs))


def test_the_filter_holds_every_key_and_few_others(tmp_path):
    generator = np.random.default_rng(5)
    keys, others = (generator.integers(0, 1 << 64, (1_000, 4), np.uint64) for _ in range(2))
    spilled = Spilled(tmp_path / ".scratch", (ScopePart(0, "a", "a.parquet", 0, 1_000),))
    for name, values in (("ids", keys[:, :2]), ("bands", keys[:, 2:]), ("signed", np.arange(1_000) > 0)):
        save(spilled.folder / f"{name}/000000.npy", values)
    earlier.write_filter(tmp_path, spilled, spilled.parts, 3_000)
    held = load(spilled.folder / earlier.FILTER_FILE)
    assert earlier.holds(held, keys[:, 0]).all() and earlier.holds(held, keys[1:, 2:]).all()
    assert not earlier.holds(held, keys[0, 2:]).any(), "a document without shingles has no bands"
    assert earlier.holds(held, others).mean() < 0.01


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11)), unique=True), st.integers(1, 3))
def test_a_band_meets_the_new_documents_with_few_earlier_ones_of_the_smallest_ids(pairs, most):
    """Ids fall as numbers rise; numbers below 8 are earlier ones."""

    class Numbers(Spilled):
        def ids(self, numbers):
            return np.stack([np.full(numbers.size, 7, np.uint64), (100 - numbers).astype(np.uint64)], axis=1)

    bands, numbers = np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).reshape(-1, 2).T
    table = pa.table({"band": bands.astype(np.uint64), "number": numbers})
    left = earlier.met(Numbers(None, (), 8), most, table)
    wanted = set()
    for band in range(4):
        old, new = ([n for b, n in pairs if b == band and (n < 8) == is_old] for is_old in (True, False))
        wanted |= {(band, n) for n in (*new, *sorted(old)[-most:])} if new else set()
    assert set(zip(*left.to_pydict().values(), strict=True)) == wanted
    assert left["number"].to_pylist() == [n for _, n in sorted(wanted)]
