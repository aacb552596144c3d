"""Documents inside longer ones: against all pairs, planted excerpts by share of edited words, order, workers, parts."""

import random
import re
from dataclasses import replace

import dagster as dg
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import VOCABULARY, Texts, corpus, documents, duplicates, file_bytes, made, printed_after_a_kill, random_texts
from properties import examples

from datakit.contained_rates import check_contained_rates
from datakit.corpus.build import CorpusConfig
from datakit.dedup.containment import CONTAINMENT
from datakit.dedup.containment_candidates import ContainmentConfig, candidates_of_range, pairs_of_range, samples
from datakit.dedup.containment_pairs import CONTAINED, containment, removed_of_range
from datakit.invariants import check_corpus, check_file_set, check_rows_conserved
from datakit.text.shingles import batch_shingles, shingle_hashes
from lineage.build.nodes import Node
from lineage.storage.digests import text_digest
from marin_assets.quality_views import contained

PRESET = ContainmentConfig()
SURE = ContainmentConfig(min_words=8, scale=1, asked_hashes=1_000, min_shared=0.001, hash_documents=1_000)
"""Every pair that shares a run is a candidate."""

BASES = [text.lower().replace("\n", " ").replace(".", "").split() for text in random_texts(3, 60, seed=91)]


def node(sources, how=SURE):
    inputs = {"normalized": tuple(map(documents, sources)), "duplicates": duplicates(sources)}
    return Node(("containment", "scope"), None, CONTAINMENT, how, inputs)


def found(artifact):
    """Id of a contained document -> (its container, containment)."""
    tables = [pl.read_parquet(path) for path in artifact.files(".parquet", under="contained/")]
    return {row[0]: row[1:] for table in tables for row in table.iter_rows() if row[1]}


def slow_containment(words, container):
    """Words of a list that stand in a run of five that the container has."""
    runs = {tuple(container[i : i + 5]) for i in range(len(container) - 4)}
    covered = {j for i in range(len(words) - 4) if tuple(words[i : i + 5]) in runs for j in range(i, i + 5)}
    return len(covered) / len(words)


def slow_found(sources, removed, how):
    """The definition: documents in the order; one leaves for the best of the documents before it that stay."""
    order, stays, gone = [], [], {}
    for source in sources:
        for text in sorted(set(source.texts), key=text_digest):
            words = re.findall(r"\w+", text.lower())
            if (source.source, text_digest(text)) not in removed and len(words) >= how.min_words:
                order.append((text_digest(text), words))
    for name, words in sorted(order, key=lambda pair: -len(pair[1])):
        held = [(slow_containment(words, other), container) for container, other in stays]
        best = max(held, key=lambda pair: pair[0], default=(0.0, ""))
        if best[0] >= how.min_containment:
            gone[name] = (best[1], best[0])
        else:
            stays.append((name, words))
    return gone


def removed_by_duplicates(root, sources):
    table = pl.read_parquet(made(root, duplicates(sources)).file("duplicates.parquet")).filter(~pl.col("is_kept"))
    return set(table.select("source", "id").iter_rows())


@st.composite
def excerpts(draw):
    """A run of words of a base, some of them replaced, with words of its own before it."""
    words = list(draw(st.sampled_from(BASES)))
    start = draw(st.integers(0, 40))
    words = words[start : start + draw(st.integers(4, 40))]
    for place in draw(st.lists(st.integers(0, len(words) - 1), max_size=4)):
        words[place] = draw(st.sampled_from(VOCABULARY))
    return " ".join([*draw(st.lists(st.sampled_from(VOCABULARY), max_size=12)), *words])


TEXT = excerpts() | st.sampled_from([" ".join(base) for base in BASES])


def walked(texts, how):
    """What the parts of the stage find among distinct texts of one source, without files."""
    ordered = sorted(texts, key=text_digest)
    hashes, bounds, words = samples(ordered, how)
    sizes = np.diff(bounds)
    asked, number, repeated = (np.repeat(column, sizes) for column in (sizes, np.arange(len(ordered)), words))
    rows = pa.table({"hash": hashes, "number": number, "words": repeated.astype(np.int32), "asked": asked.astype(np.int32)})
    candidates = candidates_of_range(pairs_of_range(rows, how.hash_documents), how.min_shared)
    pairs = []
    for small, large in zip(*(column.to_pylist() for column in candidates.columns), strict=True):
        share = containment(batch_shingles([ordered[small]], 5)[0], shingle_hashes(ordered[large], 5), 5)
        if share >= how.min_containment:
            pairs.append((0, small, large, words[small], words[large], share))
    table = pl.DataFrame(pairs, schema=["root", *CONTAINED.names], orient="row", infer_schema_length=None)
    removed = removed_of_range(table.cast({"containment": pl.Float64}).to_arrow()).to_pylist()
    name = [text_digest(text) for text in ordered]
    return {name[row["number"]]: (name[row["container"]], row["containment"]) for row in removed}


@given(st.lists(TEXT, min_size=1, max_size=16), st.sampled_from([0.3, 0.5, 0.7, 1.0]))
def test_what_the_walk_finds_is_what_comparing_every_pair_finds(texts, threshold):
    how = replace(SURE, min_containment=threshold)
    assert walked(set(texts), how) == slow_found((Texts("a", tuple(texts)),), set(), how)


@settings(max_examples=examples(3))
@given(st.lists(TEXT, min_size=1, max_size=12), st.lists(TEXT, min_size=1, max_size=12), st.sampled_from([0.3, 0.7]))
def test_and_so_is_what_the_stage_finds(tmp_path_factory, first, second, threshold):
    root, how = tmp_path_factory.mktemp("store"), replace(SURE, min_containment=threshold)
    sources = (Texts("b", tuple(first), part_bytes=1_000), Texts("a", tuple(second)))
    artifact = made(root, node(sources, how))
    assert found(artifact) == slow_found(sources, removed_by_duplicates(root, sources), how)


def with_edits(words, rate, choose):
    return " ".join(choose.choice(VOCABULARY) if choose.random() < rate else word for word in words)


def planted(rate, words, seed=92, count=40):
    """Long documents, and an excerpt of each with a share of its words replaced."""
    choose, long = random.Random(f"{rate} {words}"), random_texts(count, 900, seed)
    return long, [with_edits(text.split()[100 : 100 + words], rate, choose) for text in long]


def test_planted_excerpts_are_found_in_their_document(tmp_path):
    """By the share of edited words and the length: at 12 % a document's words in shared runs are 78 %, give or take five."""
    recall = {(0, 40): 1.0, (0.02, 40): 0.95, (0.05, 60): 0.95, (0.1, 300): 0.95, (0.12, 300): 0.8}
    long, choose, start, kind, of = random_texts(40, 900, seed=92), random.Random(92), 0, {}, {}
    for rate, words in recall:
        for text in long:
            cut = with_edits(text.split()[start : start + words], rate, choose)
            kind[text_digest(cut)], of[text_digest(cut)] = (rate, words), (text_digest(text), cut)
        start += words
    cuts = Texts("cut", tuple(cut for _, cut in of.values()))
    artifact = made(tmp_path, node((cuts, Texts("long", tuple(long))), PRESET))
    assert all(of[name][0] == container for name, (container, _) in found(artifact).items())
    for planted_kind, least in recall.items():
        assert sum(kind[name] == planted_kind for name in found(artifact)) >= least * len(long), planted_kind
    assert check_rows_conserved(artifact) == [] == check_file_set(artifact)


def test_nothing_of_unrelated_text_is_contained_nor_a_document_with_half_a_quotation(tmp_path):
    long, cut = planted(0, 60)
    half = [f"{text} {own}" for text, own in zip(cut, random_texts(40, 60, seed=93), strict=True)]
    artifact = made(tmp_path, node((Texts("half", tuple(half)), Texts("long", tuple(long))), PRESET))
    assert found(artifact) == {}
    assert artifact.manifest.extra["containment"]["candidate_pairs"] >= 35


def test_of_a_chain_only_what_lies_in_a_document_that_stays_is_removed(tmp_path):
    """Each document holds 88 % of the next one and 75 % of the one after it."""
    words = random_texts(1, 2_000, seed=94)[0].split()
    chain = [" ".join(words[i * 25 : i * 25 + 200 - i]) for i in range(8)]
    links = found(made(tmp_path, node((Texts("chain", tuple(chain)),), replace(PRESET, min_containment=0.85))))
    name = [text_digest(text) for text in chain]
    assert {key: container for key, (container, _) in links.items()} == {name[i]: name[i - 1] for i in (1, 3, 5, 7)}


def test_of_two_that_hold_each_other_the_longer_stays_and_of_equal_length_the_first_declared(tmp_path):
    long, cut = planted(0.08, 300, count=2)
    whole = [" ".join(text.split()[100:400]) for text in long]
    equal = (Texts("b", (cut[0],)), Texts("a", (whole[0],)))
    assert {key: held for key, (held, _) in found(made(tmp_path / "equal", node(equal, PRESET))).items()} == {
        text_digest(whole[0]): text_digest(cut[0])
    }
    shorter = " ".join(cut[1].split()[1:])
    longer = (Texts("b", (shorter,)), Texts("a", (whole[1],)))
    assert list(found(made(tmp_path / "longer", node(longer, PRESET)))) == [text_digest(shorter)]


def test_what_only_a_removed_duplicate_holds_stays_and_a_duplicate_is_not_contained(tmp_path):
    long, cut = planted(0, 60, count=1)
    twice = (Texts("a", (long[0],)), Texts("b", (long[0], cut[0])))
    assert found(made(tmp_path, node(twice, PRESET))) == {text_digest(cut[0]): (text_digest(long[0]), 1.0)}


def test_a_template_lists_its_longest_documents_and_full_samples_are_counted(tmp_path):
    """The template stands whole in forty documents, and as a document of its own."""
    template = random_texts(1, 50, seed=95)[0]
    carriers = [f"{template}\n{own}" for own in random_texts(40, 100, seed=96)]
    longest = f"{template}\n{random_texts(1, 120, seed=97)[0]}"
    texts = (*carriers, longest, template)
    few = made(tmp_path / "few", node((Texts("a", texts),), replace(PRESET, hash_documents=2)))
    assert found(few) == {text_digest(template): (text_digest(longest), 1.0)}
    counts = few.manifest.extra["containment"]
    assert 5 <= counts["full_samples"] <= 25 and counts["candidate_pairs"] <= 2 * 42
    assert counts["sources"] == {"a": {"documents": 42, "contained": 1, "words": 50}}
    many = made(tmp_path / "many", node((Texts("a", texts),), replace(PRESET, hash_documents=64)))
    assert found(many) == found(few) and many.manifest.extra["containment"]["full_samples"] == 0


def mixed():
    long, cut = planted(0.03, 50, count=16)
    return (Texts("a", (*cut[:10], *long[:5]), part_bytes=15_000), Texts("b", (*long[5:], *cut[10:]), part_bytes=50_000))


def test_ranges_workers_and_parts_do_not_change_what_is_found(tmp_path, monkeypatch):
    sources = mixed()
    whole = made(tmp_path / "whole", node(sources, PRESET))
    assert len(found(whole)) > 12
    one_part = made(tmp_path / "one", node(tuple(replace(source, part_bytes=1 << 30) for source in sources), PRESET))
    assert found(one_part) == found(whole) and len(one_part.files(".parquet")) < len(whole.files(".parquet"))
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 60_000)
    monkeypatch.setattr("lineage.tables.components.LARGEST_GRAPH", 3)
    monkeypatch.setattr("datakit.dedup.containment_candidates.PAIRS_AT_ONCE", 7)
    cut = made(tmp_path / "cut", node(sources, PRESET))
    assert file_bytes(whole) == file_bytes(cut)


@pytest.mark.slow
def test_two_workers_give_the_bytes_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr("datakit.dedup.containment.SMALL_SCOPE_ROWS", 1)
    sources = mixed()
    one, two = (made(tmp_path / str(workers), node(sources, PRESET), workers) for workers in (1, 2))
    assert file_bytes(one) == file_bytes(two)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    code = """
import os, signal, sys, pathlib
import datakit.dedup.containment as stage
from test_containment import PRESET, mixed, node
from inputs import made
root = pathlib.Path(sys.argv[1])
if not (root / "killed").exists():
    (root / "killed").touch()
    stage.removals = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
print(made(root, node(mixed(), PRESET)).folder())
"""
    assert printed_after_a_kill(code, tmp_path / "killed")
    killed, whole = (made(tmp_path / name, node(mixed(), PRESET)) for name in ("killed", "whole"))
    assert file_bytes(killed) == file_bytes(whole)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("min_containment", 0, r"containment\.min_containment is 0; it must be in \(0, 1\]"),
        ("scale", 0, r"containment\.scale is 0; it must be at least 1"),
        ("min_words", 4, r"containment\.min_words is 4; it must be at least ngram_words, which is 5"),
    ],
)
def test_a_bad_config_is_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(PRESET, **{field: value})


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory):
    """A store, and sources of which the second is excerpts of the first, but for two documents."""
    long, cut = planted(0.02, 60, count=10)
    sources = (Texts("long", tuple(long)), Texts("cut", (*cut, *random_texts(2, 80, seed=98)), part_bytes=2_000))
    return tmp_path_factory.mktemp("two"), sources


def test_a_corpus_drops_what_lies_inside_another_document(two_sources):
    root, (long, cut) = two_sources
    how = CorpusConfig(drop_contained=True, drop_low_quality=False)
    of_corpus = corpus(cut, (long, cut), how)
    inputs = {**of_corpus.inputs, "containment": node((long, cut), PRESET)}
    artifact = made(root, replace(of_corpus, inputs=inputs))
    assert artifact.manifest.statistics["drops"] == {"inside_another": 10} and artifact.manifest.statistics["rows_out"] == 2
    assert check_corpus(artifact) == [] == check_rows_conserved(artifact)
    with pytest.raises(ValueError, match=r"filters read \['containment'\]"):
        made(root, of_corpus)


def test_a_source_that_lies_inside_another_one_is_named_with_its_share_and_texts(two_sources):
    root, sources = two_sources
    artifact = made(root, node(sources, PRESET))
    (violation,) = check_contained_rates(artifact)
    assert violation.startswith("cut: 10 of 12 documents are removed (83.3%, bound 75%), 10 inside others: ")
    assert any(text[:50] in violation for text in sources[1].texts[:10])
    assert check_contained_rates(made(root, node(sources, replace(PRESET, max_removed_share=0.9)))) == []
    shown = contained(artifact)["contained_by_source"]
    assert isinstance(shown, dg.TableMetadataValue)
    assert [(row.data["source"], row.data["contained_share"]) for row in shown.records] == [("cut", 0.8333), ("long", 0.0)]
