"""Forms in which items leak: each form changes what its name states and nothing else."""

import random
import re

import pytest

from datakit.contamination.leak_forms import AROUND, FORMAT_CHANGES, LEAK_FORMS, NAMES
from datakit.text.canonical_text import canonical_bytes

MATH = {
    "task": "gsm8k",
    "question": "Every week the farmer Tobias sells 16 ducks to Miriam, who pays Tobias 40 dollars. What does one duck cost?",
    "answer": "2.5",
    "solution": "Miriam pays 40 dollars for 16 ducks, so every single duck costs her 40 / 16 = <<40/16=2.5>>2.5 dollars.",
    "choices": [],
    "answer_index": -1,
}
CHOICE = {
    "task": "arc_easy",
    "question": "which of these materials conducts electricity best?",
    "answer": "copper",
    "solution": "",
    "choices": ["wood", "copper", "glass"],
    "answer_index": 1,
}


def leak(form, item, seed=0):
    return LEAK_FORMS[form](item, random.Random(seed))


def words(text):
    return canonical_bytes(text).decode().split()


@pytest.mark.parametrize("form", sorted(set(FORMAT_CHANGES) - {"in_longer_paragraph", "choices_relabelled", "question_only"}))
def test_a_change_of_format_keeps_the_words_of_the_question_or_the_answer(form):
    markup = r"<<[^>]*>>|</?[a-z][^>]*>|[$*]"
    held = " ".join(words(re.sub(markup, "", leak(form, MATH))))
    assert " ".join(words(MATH["question"])) in held or form == "answer_only"
    assert "so every single duck costs her" in held


def test_forms_apply_to_the_items_that_have_what_they_change():
    applied = {form for form in LEAK_FORMS if leak(form, CHOICE) is not None}
    assert set(LEAK_FORMS) - applied == {"answer_only", "numbers_changed", "names_changed"}
    assert {form for form in LEAK_FORMS if leak(form, MATH) is None} == {"choices_relabelled"}


def test_choices_are_lettered_or_numbered_in_another_order():
    assert leak("olmes", CHOICE) == f"Question: {CHOICE['question']} A. wood B. copper C. glass Answer: B"
    orders = {tuple(re.findall(r"\) (\w+)", leak("choices_relabelled", CHOICE, seed))) for seed in range(20)}
    assert len(orders) > 1 and {tuple(sorted(order)) for order in orders} == {("copper", "glass", "wood")}


def test_a_longer_paragraph_has_four_words_around_each_of_the_items_and_no_line_break():
    text, inner = leak("in_longer_paragraph", MATH), leak("verbatim", MATH).split()
    assert "\n" not in text and len(text.split()) == 5 * len(inner)
    assert " ".join(inner) in text and text.startswith(AROUND.split()[0])


@pytest.mark.parametrize("percent", [5, 12, 25])
def test_edits_change_as_many_words_as_they_say(percent):
    """10,000 words: a binomial share is within five standard deviations (.022 at 25 %)."""
    long = CHOICE | {"question": " ".join(f"word{at}" for at in range(10_000))}
    kept = len(re.findall(r"\bword\d+", leak(f"edited_{percent}_percent", long)))
    assert 1 - kept / 10_000 == pytest.approx(percent / 100, abs=5 * (percent / 100 * (1 - percent / 100) / 10_000) ** 0.5)


def test_changed_numbers_have_as_many_digits_and_the_words_stay():
    text = leak("numbers_changed", MATH)
    assert "<<" not in text and re.sub(r"\d", "0", text).startswith("Question: Every week the farmer Tobias sells 00 ducks")
    assert re.findall(r"\d+", text) != re.findall(r"\d+", leak("typographic", MATH))


def test_a_changed_name_is_changed_wherever_it_stands():
    text = leak("names_changed", MATH)
    assert "Tobias" not in text and "Miriam" not in text and sum(text.count(name) for name in NAMES) == 4
