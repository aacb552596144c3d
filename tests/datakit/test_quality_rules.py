"""Published rule sets equal their definitions, each rule rejects a text that breaks it, and code is exempt."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, file_bytes, made, random_texts
from slow_rules import BAD, BAD_WORDS, slow_signals

from datakit.quality.listed_words import BAD_WORDS_SHA256, bad_words
from datakit.quality.rule_sets import (
    C4,
    C4_BAD_WORDS,
    FINEWEB,
    GOPHER_QUALITY,
    GOPHER_REPETITION,
    MC4_PARAGRAPHS,
    PUBLISHED,
    SIGNALS,
    Rule,
    RuleSet,
)
from datakit.quality.rule_sets import measured as measured_signals
from datakit.quality.rules import QUALITY_RULES, QualityRulesConfig, judged, quality_rules_config
from lineage.build.nodes import Node
from lineage.config import from_jsonable, to_jsonable

WORDS = st.sampled_from(
    ["the", "The", "of", "a", "house", "7", "#", "…", "...", "end.", "{", "-", "•", "\n", "\n\n", "\n \n", '"so"', "é。",
     "[1]", "[edit]", "lorem ipsum", "JavaScript", "uses cookies", "won't", "a" * 1001, "word " * 50,
     "[citation needed]", "[edit", "[x].", "(so.)", "uses coo\N{KELVIN SIGN}ies", "javascrİpt", "priv", "privacy policy?",
     "nude", "Nude.", "denuded", "s&m", "🖕", "a (big breasts) b", "sexyé", "2 girls 1 cup", "2 girls", "G-Spot", "s&M", "é🖕"]
)  # fmt: skip
TEXT = st.lists(WORDS, max_size=60).map(" ".join) | st.text(st.sampled_from("ab \n.-…é!\t\0"), max_size=50)
SENTENCE = "The years have been kind to house number {} by the river, and people of the town walk past it with their dogs."


@given(st.lists(TEXT, min_size=1, max_size=6))
def test_signals_are_those_of_the_definitions(texts):
    rows = measured_signals(pl.Series(texts)).rows(named=True)
    for text, row in zip(texts, rows, strict=True):
        assert row == pytest.approx(slow_signals(text), abs=1e-12), text


def reason(rules, text):
    return judged(pl.DataFrame({"id": ["0" * 32], "text": [text]}), (rules,))[rules.name][0]


@pytest.mark.parametrize(
    ("rules", "text", "wanted"),
    [
        (GOPHER_QUALITY, "too short", "num_words_low"),
        (GOPHER_QUALITY, "a b c d e " * 20, "mean_word_chars_low"),
        (GOPHER_QUALITY, "the houses of # and # others " * 20, "hash_word_ratio_high"),
        (GOPHER_QUALITY, "the house of and... that " * 20, "ellipsis_word_ratio_high"),
        (GOPHER_QUALITY, "\n".join(["- the house of the town and that"] * 20), "bullet_line_frac_high"),
        (GOPHER_QUALITY, "\n".join(["the house of the town and that then we saw it..."] * 20), "ellipsis_line_frac_high"),
        (GOPHER_QUALITY, "the 1234 of 5678 and " * 20, "alpha_word_frac_low"),
        (GOPHER_QUALITY, "kumin rostal vendu " * 20, "stop_words_low"),
        (GOPHER_REPETITION, "one line\nand another\n\n" * 9, "duplicate_paragraph_frac_high"),
        (GOPHER_REPETITION, "a\n\n" + "the longer ones\n\n" * 2 + "d\n\ne\n\nf", "duplicate_paragraph_char_frac_high"),
        (GOPHER_REPETITION, "one line\n" * 9, "duplicate_line_frac_high"),
        (GOPHER_REPETITION, "a longer line\nb\nc\nd\ne\na longer line", "duplicate_line_char_frac_high"),
        (GOPHER_REPETITION, "over and " * 3 + "then some words which never come again", "top_2_gram_char_frac_high"),
        (C4, "We saw lorem ipsum there.", "lorem_ipsum_high"),
        (C4, "It is a { here, they said.", "curly_bracket_high"),
        (C4, "One sentence is too few.\nmenu\nhome\nUse of cookies is what we do here.", "c4_sentences_low"),
        (C4_BAD_WORDS, f"{SENTENCE} Then came NUDE, they say.", "bad_words_high"),
        (C4_BAD_WORDS, f"{SENTENCE} Then came a nude\npainting", "bad_words_high"),
        (C4_BAD_WORDS, f"{SENTENCE} The hills were denuded, as in Essex and Scunthorpe.", ""),
        (MC4_PARAGRAPHS, "a short page", "long_lines_low"),
        (FINEWEB, "no end\n" * 3 + "none here", "terminal_line_frac_low"),
        (FINEWEB, "Short.\nAlso.\nToo.\n" + SENTENCE, "short_line_frac_high"),
        (FINEWEB, f"{SENTENCE}\n{SENTENCE}", "duplicate_line_char_frac_high"),
        (FINEWEB, SENTENCE + "\n" * 30, "newline_word_ratio_high"),
    ],
)  # fmt: skip
def test_a_text_goes_for_the_rule_it_breaks(rules, text, wanted):
    assert reason(rules, text) == wanted


def test_every_rule_of_n_grams_can_name_a_drop():
    """Each alone, since a phrase that repeats breaks the rules before it too."""
    phrase = "this phrase of exactly ten words will be repeated here once"
    longer = " ".join(f"{word} {phrase}" for word in ("first", "second", "third"))
    for rule in GOPHER_REPETITION.rules[4:]:
        text = "again and again " * 6 if rule.signal.startswith("top") else longer
        assert reason(RuleSet("alone", "", (rule,)), text) == f"{rule.signal}_high"


def test_prose_passes_every_set():
    words = " ".join(random_texts(4, 60, seed=3)).replace("\n", " ").lower().replace(".", "").split()
    sentences = [f"The {' '.join(words[i : i + 4])} of {' '.join(words[i + 4 : i + 8])}." for i in range(0, 240, 8)]
    essay = "\n".join(" ".join(sentences[i : i + 6]) for i in range(0, 30, 6))
    assert {rules.name: reason(rules, essay) for rules in PUBLISHED} == {rules.name: "" for rules in PUBLISHED}


def test_every_listed_word_is_found_as_a_word_in_any_case():
    forms = [form for word in BAD for form in (f"{word.upper()}, so", f"a ({word})", f"x{word}", f"{word}s", f"{word} {word}y")]
    signals = measured_signals(pl.Series(forms))["bad_words"].to_list()
    assert signals == [float(bool(BAD_WORDS.search(form.lower()))) for form in forms]
    assert 2 * len(BAD) <= sum(signals) < len(forms)


def test_another_list_of_words_is_refused(tmp_path, monkeypatch):
    """Its digest is in the set, and so in every config that judges by it."""
    (tmp_path / "words").write_text("kumin\n")
    monkeypatch.setattr("datakit.quality.listed_words.BAD_WORDS_FILE", tmp_path / "words")
    bad_words.cache_clear()
    with pytest.raises(ValueError, match=r"words has sha256 \w+, \w+ is declared"):
        bad_words()
    assert BAD_WORDS_SHA256[:16] in json.dumps(to_jsonable(quality_rules_config("prose")))


def test_prose_rules_are_refused_for_code():
    assert quality_rules_config("code").sets == quality_rules_config("math").sets == ()
    with pytest.raises(ValueError, match="domain 'code'; prose rules judge only docs, encyclopedia, prose, web"):
        QualityRulesConfig("code", (C4,))


def test_bad_sets_are_refused_by_name():
    with pytest.raises(ValueError, match="'loudness'; allowed: num_words"):
        Rule("loudness", low=1)
    with pytest.raises(ValueError, match="'num_words' has neither"):
        Rule("num_words")
    with pytest.raises(ValueError, match="'my set'"):
        RuleSet("my set", "", (Rule("num_words", low=1),))
    with pytest.raises(ValueError, match="two sets have one name, of c4, c4"):
        QualityRulesConfig("prose", (C4, C4))


def test_sets_are_data_that_survive_json():
    config = quality_rules_config("prose")
    assert from_jsonable(QualityRulesConfig, json.loads(json.dumps(to_jsonable(config)))) == config


@pytest.fixture(scope="module")
def table_of(tmp_path_factory):
    """The artifact of a source of a domain."""

    def made_table(domain, workers):
        source = Texts("here", (*random_texts(12, 60, seed=21), "short lead"), domain=domain, part_bytes=2_000)
        place = ("datakit", "quality_rules"), "here"
        node = Node(*place, QUALITY_RULES, quality_rules_config(domain), {"normalized": documents(source)})
        return made(tmp_path_factory.mktemp(domain), node, workers)

    return made_table


def test_the_table_has_a_row_a_document_whatever_the_workers(table_of):
    one, two = (table_of("encyclopedia", workers) for workers in (1, 2))
    assert file_bytes(one) == file_bytes(two)
    table = pl.concat([pl.read_parquet(path) for path in one.files()])
    assert table["id"].equals(ids_of(one)) and set(SIGNALS) < set(table.columns)
    assert one.manifest.extra["rule_sets"]["mc4_paragraphs"] == {"long_lines_low": 13}


def test_code_has_rows_and_no_verdict(table_of):
    code = table_of("code", 1)
    table = pl.concat([pl.read_parquet(path) for path in code.files()])
    assert table.columns == ["id"] and table["id"].equals(ids_of(code))
    assert code.manifest.extra["rule_sets"] == {}


def ids_of(artifact):
    return pl.concat([pl.read_parquet(path) for path in artifact.input("normalized").files(".parquet", "documents/")])["id"]
