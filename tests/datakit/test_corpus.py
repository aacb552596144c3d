"""Corpus selection: filters, deduplication, train and held-out splits, and the count of every drop."""

from dataclasses import replace
from itertools import chain

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import Marked, Texts, corpus, documents, duplicates, edited, file_bytes, made, marks, quality, random_texts
from properties import examples

from datakit.corpus.build import CORPUS, CorpusConfig, is_heldout
from datakit.corpus.parts import layout, write_split_part
from datakit.documents.parts import document_paths, read_documents, write_parquet
from datakit.documents.schemas import DOCUMENT_SCHEMA
from datakit.invariants import check_corpus, check_rows_conserved
from lineage.build.nodes import Node
from lineage.shards.failures import IncompleteError
from lineage.storage.digests import text_digest

HALF = CorpusConfig(heldout_frac=0.5)
SIDES = ("train", "heldout")
POOL = random_texts(20, 60, seed=45)
POOL = (*POOL, *(edited(text, seed=i) for i, text in enumerate(POOL[:12])), *(f"short lead {i}" for i in range(8)))


def ids(artifact, split):
    return set(pl.concat([pl.read_parquet(p) for p in artifact.files(".parquet", under=f"{split}/")])["id"])


def reasons(artifact):
    return dict(pl.read_parquet(artifact.files("dropped.parquet")[0]).iter_rows())


def test_each_filter_names_its_drops_and_the_rest_is_split(tmp_path):
    good = random_texts(20, 60, seed=31)
    copy = sorted([good[0], edited(good[0], seed=1)], key=text_digest)
    source = Texts("here", (*good[1:], *copy, "short lead"))
    marked = Marked((good[5],))
    artifact = made(tmp_path, corpus(source, how=HALF, marked=marked))
    assert reasons(artifact) == {
        text_digest(copy[1]): "duplicate",
        text_digest(good[5]): "contaminated",
        text_digest("short lead"): "low_quality:num_words_low",
    }
    statistics = artifact.manifest.statistics
    train, heldout = ids(artifact, "train"), ids(artifact, "heldout")
    assert train and heldout and not train & heldout
    assert train | heldout | reasons(artifact).keys() == set(map(text_digest, source.texts))
    assert (statistics["rows_in"], statistics["rows_out"]) == (22, 19)
    assert (statistics["rows_train"], statistics["rows_heldout"]) == (len(train), len(heldout))
    assert statistics["drops"] == {"contaminated": 1, "duplicate": 1, "low_quality:num_words_low": 1}
    assert artifact.manifest.extra["corpus"] == {"source": "here", "domain": "encyclopedia"}


def test_of_several_reasons_the_first_filter_is_named(tmp_path):
    """`duplicate` comes before `contaminated` before `low_quality`."""
    long, short = random_texts(1, 12, seed=32)[0], "a lead of five words"
    near = sorted([long, edited(long, seed=1, edits=1) + " Vendu rostal."], key=text_digest)
    first, second = Texts("first", (*near, short, *random_texts(3, 60, seed=33))), Texts("second", (*near, short))
    fillers = Texts("second", (*second.texts, *random_texts(3, 60, seed=34)))
    marked = Marked((near[0], near[1], short))
    artifact = made(tmp_path, corpus(fillers, scope=(first, fillers), marked=marked))
    assert reasons(artifact) == dict.fromkeys(map(text_digest, (*near, short)), "duplicate")
    alone = made(tmp_path / "alone", corpus(fillers, how=CorpusConfig(drop_duplicates=False), marked=marked))
    assert reasons(alone) == dict.fromkeys(map(text_digest, (*near, short)), "contaminated")


@pytest.mark.parametrize("off", ["drop_duplicates", "drop_contaminated", "drop_low_quality"])
def test_a_filter_that_is_not_declared_does_not_drop(tmp_path, off):
    good = random_texts(8, 60, seed=35)
    source = Texts("here", (*good, edited(good[0], seed=1), "short lead"))
    every = made(tmp_path / "every", corpus(source, marked=Marked((good[3],))))
    fewer = made(tmp_path / "fewer", corpus(source, how=CorpusConfig(**{off: False}), marked=Marked((good[3],))))
    names = {"drop_duplicates": "duplicate", "drop_contaminated": "contaminated", "drop_low_quality": "low_quality"}
    kinds = {reason.split(":")[0] for reason in reasons(every).values()}
    assert kinds == set(names.values())
    assert {reason.split(":")[0] for reason in reasons(fewer).values()} == kinds - {names[off]}


def test_documents_pass_unchanged_and_sorted(tmp_path):
    source = Texts("here", tuple(random_texts(30, 40, seed=36)), part_bytes=2_000)
    artifact = made(tmp_path, corpus(source, how=HALF))
    before = pl.concat([pl.read_parquet(p) for p in made(tmp_path, documents(source)).files(".parquet", under="documents/")])
    for split in ("train", "heldout"):
        after = pl.concat([pl.read_parquet(p) for p in artifact.files(".parquet", under=f"{split}/")])
        assert after["id"].is_sorted()
        assert after.equals(before.filter(pl.col("id").is_in(after["id"].to_list())))


@settings(max_examples=examples(8))
@given(
    st.lists(st.sampled_from(range(len(POOL))), min_size=1, max_size=24, unique=True),
    st.sets(st.sampled_from(range(len(POOL)))),
    st.integers(200, 20_000),
    st.booleans(),
)
def test_parts_and_passes_give_what_a_walk_over_all_documents_gives(tmp_path_factory, chosen, marked, part_bytes, drop):
    """A slow obvious reference: one document after the other, from the whole tables in memory."""
    root = tmp_path_factory.mktemp("corpus")
    source = Texts("here", tuple(POOL[i] for i in sorted(chosen)), part_bytes=part_bytes)
    how = CorpusConfig(heldout_frac=0.5, drop_duplicates=drop, drop_low_quality=not drop)
    marking = Marked(tuple(POOL[i] for i in sorted(marked)))
    verdicts = read_documents(made(root, quality(source)), "quality")
    clusters = {
        row["id"]: row for row in pl.read_parquet(made(root, duplicates((source,))).file("duplicates.parquet")).to_dicts()
    }
    wanted = {"train": [], "heldout": [], "dropped": []}
    for document, low in zip(read_documents(made(root, documents(source))).to_dicts(), verdicts["reason"], strict=True):
        cluster = clusters.get(document["id"], {"is_kept": True, "cluster_id": document["id"]})
        if drop and not cluster["is_kept"]:
            wanted["dropped"].append((document["id"], "duplicate"))
        elif document["text"] in marking.texts:
            wanted["dropped"].append((document["id"], "contaminated"))
        elif not drop and low:
            wanted["dropped"].append((document["id"], f"low_quality:{low}"))
        else:
            wanted["heldout" if is_heldout(cluster["cluster_id"], how) else "train"].append(document)
    if not wanted["train"]:
        with pytest.raises(ValueError, match="is left to train on"):
            made(root, corpus(source, how=how, marked=marking))
        return
    artifact = made(root, corpus(source, how=how, marked=marking))
    for split in ("train", "heldout"):
        assert read_documents(artifact, split).to_dicts() == wanted[split]
    assert pl.read_parquet(artifact.files("dropped.parquet")[0]).rows() == wanted["dropped"]
    assert check_rows_conserved(artifact) == check_corpus(artifact) == []


@given(st.lists(st.lists(st.sampled_from(["train", "heldout", ""]), max_size=9), min_size=1, max_size=5), st.integers(1, 60))
def test_output_parts_are_of_equal_rows_whatever_the_input_parts(tmp_path_factory, splits, target):
    root = tmp_path_factory.mktemp("layout")
    texts = sorted((f"text {i}" for i in range(sum(map(len, splits)))), key=text_digest)
    parts, fates, first = [], [], 0
    for index, part in enumerate(splits):
        rows = [{"id": text_digest(t), "text": t, "source": "s", "metadata": "{}"} for t in texts[first : first + len(part)]]
        parts.append(root / f"part-{index}.parquet")
        fates.append(root / f"fate-{index}.parquet")
        write_parquet(parts[-1], pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA))
        write_parquet(fates[-1], pa.table({"split": pa.array(part, pa.string())}))
        first += len(part)
    wanted = [text for text, split in zip(texts, chain(*splits), strict=True) if split == "train"]
    plan = list(
        layout("train", list(zip(parts, fates, strict=True)), [p.count("train") for p in splits], sum(map(len, wanted)), target)
    )
    texts_of_parts = []
    for name, slices in plan:
        write_split_part(root, name, slices)
        texts_of_parts.append(pl.read_parquet(root / name)["text"].to_list())
    assert list(chain(*texts_of_parts)) == wanted
    assert (
        len(texts_of_parts) == max(1, -(-sum(map(len, wanted)) // target))
        and max(map(len, texts_of_parts)) - min(map(len, texts_of_parts)) <= 1
    )


def test_a_smaller_part_size_cuts_the_same_documents_into_more_files(tmp_path):
    source = Texts("here", tuple(random_texts(40, 60, seed=41)))
    whole = made(tmp_path / "whole", corpus(source, how=HALF))
    cut = made(tmp_path / "cut", corpus(source, how=replace(HALF, target_part_bytes=2_000)), 2)
    for split in ("train", "heldout"):
        assert len(document_paths(cut, split)) > 2 > len(document_paths(whole, split))
        assert read_documents(cut, split).equals(read_documents(whole, split))


def test_a_duplicate_cluster_stands_on_one_side(tmp_path):
    """With duplicates kept in the corpus, copies across sources and edits within them fall on the same side."""
    texts = random_texts(24, 60, seed=37)
    one = Texts("one", tuple(texts))
    two = Texts("two", tuple(edited(text, seed=i) for i, text in enumerate(texts)))
    how = CorpusConfig(heldout_frac=0.5, drop_duplicates=False)
    splits = [made(tmp_path, corpus(source, scope=(one, two), how=how)) for source in (one, two)]
    table = pl.read_parquet(made(tmp_path, duplicates((one, two))).file("duplicates.parquet"))
    side = {i: split for artifact in splits for split in ("train", "heldout") for i in ids(artifact, split)}
    sides_of_clusters = table.with_columns(side=pl.col("id").replace_strict(side)).group_by("cluster_id").agg("side")
    assert sides_of_clusters.height > 20
    assert all(len(set(sides)) == 1 for sides in sides_of_clusters["side"])
    assert set(side.values()) == {"train", "heldout"}


def test_the_heldout_share_is_about_the_declared_one():
    config = CorpusConfig(heldout_frac=0.02)
    count = sum(is_heldout(text_digest(str(i)), config) for i in range(20_000))
    assert 320 < count < 480  # 400 expected, four sigma are 79


@given(st.text(max_size=20), st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_larger_share_holds_out_what_a_smaller_one_does(key, a, b):
    small, large = sorted((a, b))
    assert is_heldout(key, CorpusConfig(heldout_frac=large)) or not is_heldout(key, CorpusConfig(heldout_frac=small))


def test_a_document_stays_on_its_side_when_others_are_added(tmp_path):
    """Splits are disjoint. A grown source (other parts, other neighbours) moves no document to the other split."""
    texts = random_texts(40, 40, seed=46)
    small = Texts("here", tuple(texts[:25]), part_bytes=4_000)
    large = Texts("here", tuple(texts), part_bytes=3_000, line="grown")
    before, after = (
        {split: ids(made(tmp_path / source.line, corpus(source, how=HALF)), split) for split in ("train", "heldout")}
        for source in (small, large)
    )
    assert not after["train"] & after["heldout"]
    assert before["train"] < after["train"] and before["heldout"] < after["heldout"]


def test_a_near_copy_moves_only_the_cluster_that_it_renames(tmp_path):
    """The split key of a cluster is its smallest id (docs/design/splits.md)."""
    texts = random_texts(24, 60, seed=47)
    copies = [edited(text, seed=i) for i, text in enumerate(texts)]
    keep_all = replace(HALF, drop_duplicates=False)
    before, after = (
        {
            split: ids(made(tmp_path / line, corpus(Texts("here", tuple(held), line=line), how=keep_all)), split)
            for split in SIDES
        }
        for line, held in (("small", texts), ("grown", texts + copies))
    )
    moved = (before["train"] & after["heldout"]) | (before["heldout"] & after["train"])
    renamed = {text_digest(text) for text, copy in zip(texts, copies, strict=True) if text_digest(copy) < text_digest(text)}
    assert moved and renamed - moved and moved < renamed
    for text, copy in zip(texts, copies, strict=True):
        pair = {text_digest(text), text_digest(copy)}
        assert pair <= after["train"] or pair <= after["heldout"]


def test_another_salt_is_another_split():
    keys = [text_digest(str(i)) for i in range(200)]
    one = [is_heldout(key, HALF) for key in keys]
    assert one != [is_heldout(key, CorpusConfig(heldout_frac=0.5, split_salt="other")) for key in keys]


@pytest.mark.parametrize("wrong", ["quality", "contamination"])
def test_attributes_of_other_documents_are_refused(tmp_path, wrong):
    source = Texts("here", tuple(random_texts(5, 40, seed=38)))
    other = Texts("here", tuple(random_texts(5, 40, seed=39)), line="other")
    inputs = {
        "normalized": documents(source),
        "quality": quality(source),
        "contamination": marks(source),
        "duplicates": duplicates((source,)),
    }
    inputs[wrong] = {"quality": quality, "contamination": marks}[wrong](other)
    with pytest.raises(IncompleteError, match="other documents: materialize it again"):
        made(tmp_path, Node(("corpus", "small"), "here", CORPUS, CorpusConfig(), inputs))


def test_duplicates_that_name_strangers_are_refused(tmp_path):
    text = random_texts(1, 60, seed=40)[0]
    old = Texts("here", (text, edited(text, seed=1)), line="old")
    new = Texts("here", tuple(random_texts(3, 60, seed=41)))
    inputs = {
        "normalized": documents(new),
        "quality": quality(new),
        "contamination": marks(new),
        "duplicates": duplicates((old,)),
    }
    with pytest.raises(IncompleteError, match=r"part-00000-of-00001\.parquet names 2 documents that are not there"):
        made(tmp_path, Node(("corpus", "small"), "here", CORPUS, CorpusConfig(), inputs))


def test_nothing_left_to_train_on_is_an_error_that_says_why(tmp_path):
    source = Texts("here", ("short lead", "another short"))
    with pytest.raises(ValueError, match=r"no document of 2 is left.*'low_quality:num_words_low': 2"):
        made(tmp_path, corpus(source))


@pytest.mark.slow
def test_two_workers_write_the_same_bytes_as_one(tmp_path):
    source = Texts("here", (*random_texts(20, 60, seed=42), "short lead"), part_bytes=3_000)
    one, two = (made(tmp_path / str(workers), corpus(source, how=HALF), workers) for workers in (1, 2))
    assert file_bytes(one) == file_bytes(two)


def test_a_share_of_one_is_refused():
    with pytest.raises(ValueError, match=r"corpus.heldout_frac is 1.0; it must be in \[0, 1\)"):
        CorpusConfig(heldout_frac=1.0)
