"""Contamination marks: what is found, in which tier and where, and what is not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from slow_scan import item_table

from datakit.contamination.channels import ItemIndex, channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.item_grams import index_items
from datakit.contamination.scan import scan
from datakit.readers.conversations import conversation_record
from datakit.sources.record import Record
from datakit.text.byte_spans import cut_bytes
from datakit.text.canonical_text import canonical_bytes
from lineage.match_tiers import DOUBTED_TIERS

REPOSITORY = Path(__file__).parents[2]
PROSE = (
    "The harbour lay quiet under a grey sky, and the boats that had come in with the morning tide were drying their nets "
    "along the wall. An old clerk counted barrels by the gate; nobody hurried him, for the price of salt had fallen again "
    "and the merchants were content to wait for better news from the capital before they opened their books."
)


def matches_of(texts: list[str], *questions: str, **changes) -> list[tuple[int, int, str]]:
    config = replace(ContaminationConfig(), **changes)
    channels = channel_table(item_table(*({"question": question} for question in questions)))
    return [(m.document, m.channel, m.tier) for m in scan(texts, index_items(channels, config), config)]


def vendored_items(task: str) -> pl.DataFrame:
    return pl.read_ndjson(REPOSITORY / "data" / "eval_items" / f"{task}.jsonl")


def test_a_few_shared_words_of_long_questions_are_not_scored(monkeypatch):
    """Two runs of five words, far apart: enough different grams to look at the pair, and no window of six words."""
    monkeypatch.setattr("datakit.contamination.scan.best_window", lambda *_: pytest.fail("scored"))
    words = [f"w{letter}rd{other}" for letter in "aeiou" for other in "bcdfg"]
    document = " ".join([*words[:5], *(["other"] * 40), *words[10:15]])
    assert matches_of([document], " ".join(words), max_aligned_words=0) == []


def test_a_question_of_few_words_is_found_where_its_answer_follows():
    """Five words and three: together as many as the shortest question that is found alone."""
    channels = channel_table(item_table({"question": "Which metal rusts in seawater?", "answer": "plain carbon steel"}))
    texts = [
        "Question: which metal rusts in seawater? Answer: plain carbon steel.",
        "Which metal rusts in seawater?",
        "Plain carbon steel.",
        f"Which metal rusts in seawater? {PROSE} Plain carbon steel.",
    ]
    config = ContaminationConfig()
    assert [(m.document, m.tier) for m in scan(texts, index_items(channels, config), config)] == [(0, "near")]


def test_a_much_edited_question_is_found_where_its_answer_follows():
    """Three of eight words are replaced. A number proves nothing: formulas are full of them."""
    other = [
        {"question": f"why does the {word} engine need copper wire", "answer": "heat"}
        for word in ["green", "window", "silver", "winter", "river", "stone", "light", "candle"]
    ]
    asked = {"question": "does a green harbour candle float in seawater", "answer": "never again"}
    edited = "Question: window a green harbour candle seldom in seven"
    channels = channel_table(item_table(asked, *other))

    def tiers(text: str, channels: pl.DataFrame = channels) -> list[str]:
        config = ContaminationConfig()
        return [match.tier for match in scan([text], index_items(channels, config), config)]

    assert tiers(f"{edited} Answer: never again") == ["near"]
    assert tiers(edited) == tiers(f"{edited} Answer: always") == []
    assert tiers(f"{edited} {PROSE} never again") == [], "the answer stands elsewhere"
    assert tiers(f"{edited} 42", channel_table(item_table({**asked, "answer": "42"}, *other))) == []


def without_tags(text: str) -> str:
    return re.sub(r"<<.*?>>", "", text)


REFORMATTED = {
    "verbatim": lambda q, a: f"Question: {q}\nAnswer: {a}",
    "olmes": lambda q, a: f"Question: {q} Answer: " + " ".join(without_tags(a).split()),
    "question only": lambda q, a: q,
    "answer only, tags cut": lambda q, a: without_tags(a),
    "wrapped": lambda q, a: "\n".join(q.split()),
    "lower case, no punctuation": lambda q, a: canonical_bytes(q).decode(),
    "upper case, typographic": lambda q, a: q.upper().replace("'", "’").replace(" ", "  "),
    "in a longer paragraph": lambda q, a: f"{PROSE} {PROSE} {q} {PROSE} {PROSE}",
}


@pytest.mark.parametrize("form", REFORMATTED)
def test_a_reformatted_gsm8k_item_is_found_verbatim(form):
    items = vendored_items("gsm8k").head(60)
    channels = channel_table(items.with_columns(passage=pl.lit(""), code=pl.lit("")))
    config = ContaminationConfig()
    index = index_items(channels, config)
    pairs = zip(items["question"], items["solution"], strict=True)
    documents = [f"{PROSE[:200]}\n\n{REFORMATTED[form](q, a)}\n\n{PROSE[200:]}" for q, a in pairs]
    item_of = channels["item"].to_list()
    marked = {m.document for m in scan(documents, index, config) if m.tier == "verbatim" and item_of[m.channel] == m.document}
    # a solution of almost nothing but numbers and symbols is not matchable alone
    assert len(marked) >= (58 if form == "answer only, tags cut" else 60)


def test_spans_point_at_the_match_in_the_original_text():
    question = "How many ducks’ eggs — 1,200 or more — does Élodie’s farm sell in one ordinary week?"
    text = f"¡Prólogo! {PROSE}\n{question.upper()}\n{PROSE}"
    config = ContaminationConfig()
    (match,) = scan([text], index_items(channel_table(item_table({"question": question})), config), config)
    assert cut_bytes(text, match.start_byte, match.end_byte) == question.upper()


def test_changed_numbers_are_a_template_match():
    question = (
        "Maria bought 12 boxes of pencils at 3 dollars each and gave 5 of them to her cousin before the school year began."
    )
    changed = question.replace("12", "47").replace("3", "9").replace("5", "21")
    assert matches_of([changed], question) == [(0, 0, "template")]
    assert matches_of([question], question) == [(0, 0, "verbatim")]


def test_number_lists_and_symbol_soup_never_match():
    assert matches_of(["1 2 3 4 5 6 7 8 9 10 11 12 " * 50], "Continue the list 1 2 3 4 5 6 7 8 9 10 11 12 13") == []
    assert matches_of(["x 2 y 2 z 2 " * 50], "x 2 y 2 z 2 x 2 y 2 z 2 x 2 y 2") == []
    assert matches_of(["Find the value of 7 3 9 1."], "Find the value of 6 • 24 ÷ (8 − 5) + 12 + 17") == []


def test_a_shared_instruction_does_not_mark_but_the_items_own_words_do():
    template = "Read the following statement carefully and decide which of the options given below describes it best:"
    own = [f"the {word} of a {word} ripens in its {word} season only" for word in ("pear", "quince", "medlar", "sloe") * 4]
    questions = [f"{template} {text} number{i} tells{i} you{i} that{i}" for i, text in enumerate(own)]
    assert matches_of([f"{PROSE} {template} {PROSE}"], *questions) == []
    assert (0, 3, "verbatim") in matches_of([f"{PROSE} {questions[3]} {PROSE}"], *questions)


@pytest.mark.parametrize("escaped", ["&#{};", "&#x{:x};"])
def test_letters_written_as_entities_are_found_where_they_stand(escaped):
    question = vendored_items("gsm8k")["question"][3]
    leaked = "".join(escaped.format(ord(c)) if at % 3 == 0 and c != " " else c for at, c in enumerate(question))
    text = f"Café. {PROSE}\n{leaked}\n{PROSE}"
    config = ContaminationConfig()
    (match,) = scan([text], index_items(channel_table(item_table({"question": question})), config), config)
    assert match.tier == "verbatim" and cut_bytes(text, match.start_byte, match.end_byte) == leaked


EDITED = "How many of the geese that winter on the northern lakes return there in spring?"


@pytest.mark.parametrize(
    "edited",
    [
        "How many of those geese that winter on the southern lakes return there in autumn?",
        "How many geese that winter on the big northern lakes ever return there in the spring?",
        "How many OF the geese - that winter by the northern lakes - came there in spring",
    ],
)
def test_an_edited_question_is_near_though_few_of_its_grams_are_left(edited):
    assert matches_of([f"{PROSE} {edited} {PROSE}"], EDITED) == [(0, 0, "near")]


@pytest.mark.parametrize(
    "phrase",
    [
        "They say that winter on the northern lakes return visitors dislike is long.",  # one phrase of it
        "spring in there return lakes northern the on winter that geese the of many How",  # its words in another order
        "How many of the men that sat on the northern benches were there in winter?",  # its frame about something else
    ],
)
def test_a_phrase_of_a_question_or_its_frame_marks_no_document(phrase):
    others = ["How many of the men that sat there were tall?", "Were the women on the benches there in summer or in winter?"]
    assert {tier for _, _, tier in matches_of([f"{PROSE} {phrase} {PROSE}"], EDITED, *others)} <= {"partial"}


def test_an_edited_answer_alone_is_no_match():
    config = ContaminationConfig()
    channels = channel_table(item_table({"answer": EDITED}))
    edited = "How many of those geese that winter on the southern lakes return there in autumn?"
    assert matches_of([edited], EDITED) == [(0, 0, "near")]
    assert scan([edited], index_items(channels, config), config) == []
    assert len(scan([EDITED], index_items(channels, config), config)) == 1


def test_a_long_quotation_marks_even_when_it_is_little_of_the_item():
    rest = " ".join(f"word{i} other{i}" for i in range(100))
    quotation = " ".join(PROSE.split()[:45])
    assert matches_of([f"Hear this. {quotation} And so on."], f"{quotation} {rest}") == [(0, 0, "near")]
    tiers = [matches_of([" ".join(quotation.split()[:words])], f"{quotation} {rest}") for words in (20, 19)]
    assert tiers == [[(0, 0, "partial")], [(0, 0, "fragment")]]


def test_a_long_question_with_an_eighth_of_its_words_changed_is_near():
    """Every eighth word of 64 is another one: few 5-grams are left, and their coverage does not flag."""
    words = [f"{word}{at}" for at in range(16) for word in ("winter", "of", "lake", "geese")]
    edited = ["harbour" if at % 5 == 4 else word for at, word in enumerate(words)]
    assert matches_of([f"{PROSE} {' '.join(edited)} {PROSE}"], " ".join(words)) == [(0, 0, "near")]
    assert matches_of([f"{PROSE} {' '.join(edited)} {PROSE}"], " ".join(words), max_aligned_words=32) == []


def test_a_formula_of_few_different_words_is_not_aligned_with_another():
    asked = r"Compute $(-\sqrt{3} + \sqrt{5} + \sqrt{6})^2 + (\sqrt{3} - \sqrt{5} + \sqrt{6})^2 + (\sqrt{3} + \sqrt{5})^2.$"
    other = "collect_const(sqrt(3) + sqrt(5)*(1 + sqrt(6))) == sqrt(3)*(sqrt(2) + 5) + sqrt(6)*sqrt(3)"
    assert matches_of([other], asked) == []
    assert matches_of([other], asked, max_repeats=99, min_long_words=0) == [(0, 0, "near")]
    assert matches_of([asked], asked) == [(0, 0, "verbatim")]


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (
            r"Compute $$\sum_{n=0}^{\infty}\frac{n}{n^4+n^2+1}.$$",
            r"\zeta(s) = \sum_{n=0}^{\infty} \frac{(-1)^n}{n!} \gamma_n (s-1)^n",
        ),
        (
            r"\begin{pmatrix}1/\sqrt{2}&1/\sqrt{2}\-1/\sqrt{2}&1/\sqrt{2}\end{pmatrix}",
            "s2n = sqrt(2), 1 + sqrt(2), 1 - sqrt(2)",
        ),
    ],
)
def test_formulas_that_share_symbols_are_no_match(asked, other):
    assert set(matches_of([other], asked, min_long_words=0)) == {(0, 0, "near")}
    assert {tier for *_, tier in matches_of([other], asked)} <= {"partial"}
    assert matches_of([f"{PROSE} {asked} {PROSE}"], asked) == [(0, 0, "verbatim")]


def test_halves_of_an_item_that_may_be_called_clean_are_found():
    """Of all vendored questions; the halves of the others are phrases, and mostly not found."""
    questions = [text for task in ("gsm8k", "hellaswag", "mmlu") for text in vendored_items(task)["question"]]
    items, config = item_table(*({"question": question} for question in questions)), ContaminationConfig()
    channels = channel_table(items)
    index = config.index(items, channels)
    promised, found = index.finds_parts(), {True: list[bool](), False: list[bool]()}
    for at, text in enumerate(channels["text"]):
        words = canonical_bytes(text).decode().split()
        middle = (len(words) + 1) // 2
        for half in (words[:middle], words[middle:]):
            tiers = {match.tier for match in index.scan([" ".join(half)]) if match.channel == at}
            found[bool(promised[at])].append(bool(tiers & set(DOUBTED_TIERS)))
    assert len(found[True]) > 500 and all(found[True])
    assert len(found[False]) > 50 and sum(found[False]) < len(found[False]) * 0.7


LONGER = f"{EDITED[:-1]}, and which of them breed on the moor?"


@pytest.mark.parametrize("question", [EDITED, LONGER])
def test_half_a_question_is_partial(question):
    words = question.split()
    half = len(words) // 2
    first, second = " ".join(words[:half]), " ".join(words[half:])
    assert matches_of([f"{PROSE} {first}. {PROSE}", f"{PROSE} {second} {PROSE}"], question) == [
        (0, 0, "partial"),
        (1, 0, "partial"),
    ]
    assert matches_of([" ".join(words[:5])], question) == [], "five words are a phrase"


@pytest.mark.parametrize("megabytes", [2, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phrase", ["a", "the cat sat on the mat and ", " "])
def test_a_huge_document_of_one_phrase_is_scanned(phrase, megabytes):
    text = phrase * ((megabytes << 20) // len(phrase))
    questions = ("The cat sat on the mat and the dog lay by the door all day.", "a a a a a a a a a a")
    assert {tier for _, _, tier in matches_of([text, "", PROSE], *questions)} <= {"near", "partial", "fragment"}


def test_an_index_survives_storage(tmp_path):
    config = ContaminationConfig()
    index = index_items(channel_table(item_table({"question": PROSE})), config)
    index.save(tmp_path / "index")
    text = f"x {PROSE} y"
    assert scan([text], ItemIndex.load(tmp_path / "index"), config) == scan([text], index, config) != []


@pytest.mark.parametrize(
    "changes",
    [
        {"flag_coverage": 0.0},
        {"verbatim_coverage": 1.2},
        {"short_flag_coverage": 0.4},
        {"gram_words": 9},
        {"min_gram_distinct_words": 6},
        {"fragment_words": 3},
        {"common_items": 0},
        {"num_canaries": 0},
        {"seed_words": 6},
        {"max_aligned_words": -1},
        {"aligned_share": 0.8},
        {"partial_share": 1.1},
        {"partial_words": 0},
    ],
)
def test_a_bad_policy_is_refused_by_the_name_of_the_field(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        replace(ContaminationConfig(), **changes)


@pytest.mark.parametrize("place", ["content", "reasoning_content", "tool_calls"])
def test_items_are_found_wherever_a_conversation_says_them(place):
    """At four words a line 25 of 100 were found in reasoning and calls, where a line feed was two characters of JSON."""
    questions = vendored_items("gsm8k").head(40)["question"].to_list()
    index = index_items(channel_table(item_table(*({"question": question} for question in questions))), ContaminationConfig())
    for question in questions:
        words = question.split()
        wrapped = "\n".join(" ".join(words[i : i + 4]) for i in range(0, len(words), 4))
        call = [{"function": {"name": "write", "arguments": json.dumps({"text": wrapped})}}]
        message = {"role": "assistant", "content": "ok", place: call if place == "tool_calls" else wrapped}
        record = conversation_record("r", [{"role": "user", "content": PROSE}, message])
        assert isinstance(record, Record) and record.text is not None
        assert any(match.tier != "fragment" for match in scan([record.text], index, ContaminationConfig())), record.text
