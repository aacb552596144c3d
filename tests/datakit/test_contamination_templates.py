"""Phrases common to many documents of a source are not marked, whatever the shard order; leaked items are."""

import logging

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_contamination import PROSE, item_table
from test_contamination_stage import clean_texts, marked

import datakit.contamination.marks as contamination_stage
from datakit.contamination.channels import channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.item_grams import index_items
from datakit.contamination.protocol import COUNT_SCHEMA
from datakit.contamination.templates import without_templates
from datakit.invariants import check_cleared_items
from datakit.text.ngram_index import build_index, gram_hashes, hash_words, is_member
from lineage.artifact.store import Store
from lineage.storage.digests import text_digest
from marin_assets.describe import recorded

TEMPLATE = "Read the passage below with care and answer the question that follows it as briefly as you possibly can"
OWN = "Which shepherd counted eleven speckled goats beside the frozen mill before the merchants arrived from Bergen?"
LONG = " ".join(PROSE.split()[:50])
ASKED = f"{TEMPLATE}: why not?"
QUESTIONS = [ASKED, f"{TEMPLATE}. {OWN}", LONG]
CONFIG = ContaminationConfig(common_documents=8)


def texts(num_templates: int) -> list[str]:
    """Documents of the template alone, one that holds the item with words of its own, ten with the long item, clean ones."""
    filler = clean_texts(40)
    with_template = [f"{filler[at]}\n{TEMPLATE.upper()}\n{at} other words" for at in range(num_templates)]
    return [*with_template, leak(), *(f"{at}. {LONG} and then {at}" for at in range(10)), *filler]


def leak() -> str:
    return f"An exam. {TEMPLATE}. {OWN} Nobody."


def verdict(artifact) -> tuple[set[str], dict[str, str]]:
    marks = pl.concat(pl.read_parquet(path) for path in artifact.files(under="marks/"))
    statuses = pl.read_parquet(artifact.folder() / "items.parquet").select("item_id", "status").rows()
    return set(marks.filter("contaminated")["id"]), dict(statuses)


def test_a_phrase_of_many_documents_does_not_flag_and_items_that_hold_it_do(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    artifact = marked(Store(str(tmp_path)), texts(30), QUESTIONS, CONFIG)
    long = {text_digest(text) for text in texts(30)[31:41]}
    flagged, statuses = verdict(artifact)
    assert flagged == {text_digest(leak())} | long
    assert statuses == {"0": "unknown", "1": "matched", "2": "matched"}
    templates = artifact.manifest.extra["templates"]
    assert templates["limit"] == 8 and templates["channels"] == 3
    assert templates["most"][0] == {"suite": "s", "task": "t", "item_id": "0", "documents": 31}, "the leak holds the phrase too"
    assert templates["documents"] >= 31 and "count for nothing in documents that share a template" in caplog.text
    assert [row.data for row in recorded(artifact)["cleared_by_templates"].records] == templates["most"]


def test_a_common_phrase_that_matches_nothing_clears_nothing(tmp_path):
    """Five words of an item, in many documents: a template's, and no document has a match to be judged again."""
    phrase = " ".join(OWN.split()[:6])
    filler = clean_texts(40)
    held = [f"{text}\n{phrase} then {at}" for at, text in enumerate(filler)]
    templates = marked(Store(str(tmp_path)), held, QUESTIONS, CONFIG).manifest.extra["templates"]
    assert templates["channels"] >= 1 and (templates["items"], templates["documents"], templates["most"]) == (0, 0, [])


@pytest.mark.parametrize("copies", [1, 30])
def test_a_whole_question_is_a_leak_however_often_it_is_repeated(tmp_path, copies):
    """150 copies of a question of 20 words were cleared as a template, and the item was reported as clean."""
    filler = clean_texts(60)
    leaks = [f"{text[:at]}\n{OWN.upper()}\n{text[at:]}" for at, text in enumerate(filler[:copies], 40)]
    artifact = marked(Store(str(tmp_path)), [*leaks, *filler[copies:]], [OWN, ASKED], CONFIG)
    flagged, statuses = verdict(artifact)
    assert flagged == set(map(text_digest, leaks)) and statuses == {"0": "matched", "1": "clean"}
    assert check_cleared_items(artifact) == []


def test_copies_with_one_and_the_same_edit_are_removed_or_their_item_is_unknown(tmp_path):
    edited = OWN.replace("shepherd", "farmer")
    filler = clean_texts(60)
    leaks = [f"{text}\n{edited}\n{at}" for at, text in enumerate(filler[:30])]
    artifact = marked(Store(str(tmp_path)), [*leaks, *filler[30:]], [OWN, LONG], CONFIG)
    flagged, statuses = verdict(artifact)
    assert flagged >= set(map(text_digest, leaks)) or statuses["0"] == "unknown"
    assert statuses["0"] != "clean" and statuses["1"] == "clean"


@pytest.mark.parametrize("copies", [1, 7, 30])
@pytest.mark.parametrize("half", [0, 1])
def test_half_a_question_stays_and_leaves_its_item_unknown(tmp_path, copies, half):
    """Few copies are partial matches, which are listed; many are a template, which is cleared. Neither is `clean`."""
    words, filler = OWN.split(), clean_texts(60)
    piece = " ".join(words[half * len(words) // 2 : (half + 1) * len(words) // 2])
    leaks = [f"{text}\n{piece}\n{at}" for at, text in enumerate(filler[:copies])]
    artifact = marked(Store(str(tmp_path)), [*leaks, *filler[copies:]], [OWN, LONG], CONFIG)
    items = pl.read_parquet(artifact.folder() / "items.parquet").select("status", "num_documents", "num_partial").rows()
    few = copies <= CONFIG.common_documents
    assert verdict(artifact)[0] == set() and items[1] == ("clean", 0, 0)
    assert items[0] == ("unknown", 0, copies if few else 0)
    assert artifact.manifest.extra["contamination"]["documents_by_tier"]["partial"] == (copies if few else 0)
    assert bool(check_cleared_items(artifact)) != few


def test_what_a_template_clears_fails_a_check_that_names_it(tmp_path):
    artifact = marked(Store(str(tmp_path)), texts(30), QUESTIONS, CONFIG)
    (violation,) = check_cleared_items(artifact)
    assert "t/0 in 31" in violation and "waive this check" in violation


def test_a_phrase_of_few_documents_is_a_match(tmp_path):
    flagged, statuses = verdict(marked(Store(str(tmp_path)), texts(5), QUESTIONS, CONFIG))
    assert {text_digest(text) for text in texts(5)[:6]} <= flagged and statuses["0"] == "matched"


@pytest.mark.slow
def test_the_verdict_is_the_same_for_any_cut_and_any_order_of_shards(tmp_path, monkeypatch):
    one = marked(Store(str(tmp_path / "one")), texts(30), QUESTIONS, CONFIG, part_bytes=4_000)
    monkeypatch.setattr(contamination_stage, "SLICE_BYTES", 1)
    assert len(one.files(under="marks/")) > 3
    for workers in (2, 8):
        more = marked(Store(str(tmp_path / f"{workers}")), texts(30), QUESTIONS, CONFIG, part_bytes=4_000, workers=workers)
        assert one.data_version == more.data_version
        assert one.manifest.extra == more.manifest.extra


def test_words_under_templates_do_not_align_a_channel():
    """An edited template, which word-for-word alignment finds, is judged by its other words: here it has none."""
    index = index_items(channel_table(item_table({"question": TEMPLATE})), CONFIG)
    grams = gram_hashes(hash_words([TEMPLATE.lower().encode()]).hashes, CONFIG.gram_words)
    rows = {"is_masked": [False] * len(grams), "gram": grams, "documents": [9] * len(grams)}
    judged = without_templates(index, pl.DataFrame(rows, schema=COUNT_SCHEMA), CONFIG)
    assert index.aligned.needed[0] < 1 and judged.aligned.needed[0] == float("inf")
    assert index.is_matchable().all() and not judged.is_matchable().any()


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_some_postings_of_an_index_are_the_index_of_them(drawn):
    """Grams without a posting are gone, and all else is in the order of an index that never had them."""
    grams = np.array([0x9E3779B97F4A7C15 * gram % 2**64 for gram, _ in drawn], np.uint64)
    wanted = np.array([is_wanted for _, is_wanted in drawn], np.bool_)
    channels, positions = np.arange(len(drawn)) // 4, np.arange(len(drawn)) % 4
    some = build_index(grams, np.ones(len(drawn)), channels, positions, 3).only(wanted[np.argsort(grams, kind="stable")])
    built = build_index(grams, wanted.astype(np.float64), channels, positions, 3)
    for name in ("grams", "offsets", "channels", "positions"):
        np.testing.assert_array_equal(getattr(some, name), getattr(built, name), err_msg=name)
    assert [part.tolist() for part in some.lookup(grams)] == [part.tolist() for part in built.lookup(grams)]


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_members_of_a_list_of_grams_are_those_that_numpy_finds(grams, others):
    some, wanted = np.array(grams, np.uint64), np.array([*grams[::2], *others], np.uint64)
    np.testing.assert_array_equal(is_member(some, wanted), np.isin(some, wanted))


@pytest.mark.parametrize(("documents", "limit"), [(0, 100), (100_000, 100), (100_001_000, 100_001)])
def test_the_limit_grows_with_the_source(documents, limit):
    assert ContaminationConfig().document_limit(documents) == limit


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="common_documents 0 must be at least 1"):
        ContaminationConfig(common_documents=0)
