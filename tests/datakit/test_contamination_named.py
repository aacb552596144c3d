"""Published contamination policies equal slow versions of their definitions, and their matches are reported."""

import random
from collections.abc import Sequence

import polars as pl
import pytest
import slow_policies
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_contamination import PROSE

from benchmarks.rival_policies.datatrove import DatatrovePolicy
from benchmarks.rival_policies.dolma import DolmaPolicy
from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.channels import CHANNELS, ITEM_KEY
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.protocol import Policy, count_table
from datakit.contamination.tulu import TuluPolicy
from datakit.text.byte_spans import cut_bytes

POLICIES = {
    "marin": (MarinPolicy(), slow_policies.marin),
    "tulu": (TuluPolicy(), slow_policies.tulu),
    "gpt3": (GptPolicy(), slow_policies.gpt3),
    "gpt3 by length": (
        GptPolicy(policy="gpt3-8to13gram", min_gram_words=8, max_documents=2),
        lambda items, texts: slow_policies.gpt3(items, texts, shortest=8, max_documents=2),
    ),
    "datatrove": (DatatrovePolicy(), slow_policies.datatrove),
    "dolma": (DolmaPolicy(), slow_policies.dolma),
}


def item_table(*fields: dict[str, object]) -> pl.DataFrame:
    empty = dict.fromkeys((*ITEM_KEY, *CHANNELS), "") | {"choices": [], "answer_index": -1, "suite": "s", "task": "t"}
    schema = {**dict.fromkeys((*ITEM_KEY, *CHANNELS), pl.String), "choices": pl.List(pl.String), "answer_index": pl.Int32}
    return pl.DataFrame([{**empty, "item_id": str(number), **one} for number, one in enumerate(fields)], schema=schema)


def matches(items: pl.DataFrame, texts: Sequence[str], policy: Policy):
    index = policy.index(items, policy.channels(items))
    if policy.common_grams == "ignored_before_scan":
        counts = count_table([index.count_grams(texts)])
        index = index.without(counts.filter(pl.col("documents") > policy.document_limit(len(texts))))
    return index.scan(texts)


WORD = st.sampled_from(
    ["river", "Stone", "of", "7", "3.5", "a", "don't", "--", "Élodie’s", "x=2", "…", "light-house", "(well)", "Mr.", "No."]
)
TEXT = st.lists(st.tuples(WORD, st.sampled_from([" ", " ", " ", "\n", "\n\n", " \u00a0", "\t"])), min_size=1, max_size=45).map(
    lambda pieces: "".join(word + space for word, space in pieces)
)
QUESTION = TEXT.map(str.strip).filter(bool)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(20))
@given(st.data())
def test_a_policy_marks_the_documents_that_its_definition_marks(name, data):
    policy, definition = POLICIES[name]
    items = item_table(
        *(
            {"question": data.draw(QUESTION), "answer": data.draw(TEXT), "task": data.draw(st.sampled_from(["t", "hellaswag"]))}
            for _ in range(data.draw(st.integers(1, 4)))
        )
    )
    rows = list(items.iter_rows(named=True))
    choose = data.draw(st.randoms(use_true_random=False))
    texts = [leaked(choose, rows, data.draw(TEXT)) for _ in range(data.draw(st.integers(1, 5)))]
    scores: dict[int, float] = {}
    for match in matches(items, texts, policy):
        scores[match.document] = max(match.score, scores.get(match.document, 0.0))
        assert 0 <= match.start_byte < match.end_byte <= len(texts[match.document].encode()) and match.longest_run > 0
    assert scores == pytest.approx(definition(rows, texts), abs=1e-4)


def leaked(choose: random.Random, rows: Sequence[dict], filler: str) -> str:
    """A piece of an item's record within other words, or the other words alone."""
    record = slow_policies.lm_eval_text(choose.choice(rows))
    if choose.random() < 0.2:
        return filler
    low = choose.choice([0, 0, choose.randrange(len(record))])
    return choose.choice(["", filler, f"{filler}\n\n"]) + record[low:] + choose.choice(["", f"\n\n{filler}", f" {filler}"])


QUESTION_TEXT = "Janet's ducks lay 16 eggs per day, and she eats three for breakfast each morning. How many of them are left?"
SOLUTION = "She eats three of the sixteen eggs in the morning, so thirteen eggs are left over to be sold each day."


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MarinPolicy(), f"Question: {QUESTION_TEXT}\nAnswer: {SOLUTION}"),
        (TuluPolicy(), QUESTION_TEXT.rstrip("?")),
        (GptPolicy(), f"Question: {QUESTION_TEXT}\nAnswer: {SOLUTION}"),
        (DolmaPolicy(), f"Question: {QUESTION_TEXT}\nAnswer: {SOLUTION}"),
    ],
    ids=lambda value: getattr(value, "policy", ""),
)
def test_a_match_names_its_item_and_spans_the_leak(policy, expected):
    items = item_table({"question": PROSE}, {"question": QUESTION_TEXT, "answer": SOLUTION})
    text = f"¡Prólogo! Some other words\n\nQuestion: {QUESTION_TEXT}\nAnswer: {SOLUTION}\n\nand then some more of them."
    (match,) = matches(items, ["nothing", text], policy)
    channels = policy.channels(items)
    assert (match.document, channels["item"][match.channel], match.tier) == (1, 1, "near")
    assert cut_bytes(text, match.start_byte, match.end_byte) == expected


def test_gpt3_ignores_a_gram_that_more_than_ten_documents_hold():
    items = item_table({"question": PROSE})
    phrase = " ".join(PROSE.split()[:13])
    assert [m.document for m in matches(items, [f"{i} {phrase}" for i in range(10)], GptPolicy())] == list(range(10))
    assert matches(items, [f"{i} {phrase}" for i in range(11)], GptPolicy()) == []
    assert len(matches(items, [f"{i} {phrase}" for i in range(11)], GptPolicy(max_documents=0))) == 11


@pytest.mark.parametrize("name", POLICIES)
def test_a_document_that_repeats_a_template_of_many_items_is_scanned(name):
    template = "Read this statement carefully and then decide which one of the options that are given below describes it best"
    items = item_table(*({"question": f"{template}: number {i}?", "answer": f"{i} {template}"} for i in range(300)))
    assert isinstance(matches(items, [f"{template} " * 20_000], POLICIES[name][0]), list)


@pytest.mark.parametrize("name", POLICIES)
def test_an_index_survives_storage(name, tmp_path):
    policy = POLICIES[name][0]
    items = item_table({"question": QUESTION_TEXT, "answer": SOLUTION})
    index = policy.index(items, policy.channels(items))
    index.save(tmp_path / "index")
    text = f"Question: {QUESTION_TEXT}\nAnswer: {SOLUTION}"
    assert policy.load_index(tmp_path / "index").scan([text]) == index.scan([text]) != []


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (MarinPolicy, {"overlap_threshold": 0.0}),
        (MarinPolicy, {"min_short_words": 13}),
        (MarinPolicy, {"num_canaries": 0}),
        (TuluPolicy, {"gram_tokens": 0}),
        (GptPolicy, {"gram_words": 7}),
        (GptPolicy, {"max_documents": -1}),
        (DolmaPolicy, {"min_canary_recall": 1.5}),
        (DatatrovePolicy, {"gram_words": 0}),
    ],
)
def test_a_bad_policy_is_refused_by_the_name_of_the_field(policy, changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        policy(**changes)
