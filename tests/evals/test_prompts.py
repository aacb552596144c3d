import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items import Item
from evals.prompts import continuation, gold_answer, prompt

ITEM = Item("s", "arc_easy", "1", "Why is the sky blue?", "scattering", "MIT", "d")
CHOICES = replace(ITEM, choices=("paint", "scattering"), answer_index=1)
GSM8K = replace(
    ITEM,
    task="gsm8k",
    answer="72",
    solution="She sold 48/2 = <<48/2=24>>24 clips.\nIn all 48+24 = <<48+24=72>>72.\n#### 72",
)


def test_a_question_is_asked_and_its_answer_left_open():
    assert prompt(ITEM) == "Question: Why is the sky blue?\nAnswer:"
    assert prompt(replace(ITEM, passage="Light.")) == "Light.\n\nQuestion: Why is the sky blue?\nAnswer:"


def test_hellaswag_is_continued_not_asked():
    assert prompt(replace(ITEM, task="hellaswag", question="A man sits down. He")) == "A man sits down. He"


def test_the_prompt_never_holds_the_answer():
    secret = replace(CHOICES, answer="xyzzy", choices=("paint", "xyzzy"), solution="xyzzy!", code="xyzzy()")
    for task in ("arc_easy", "hellaswag", "gsm8k"):
        assert "xyzzy" not in prompt(replace(secret, task=task))


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_an_answer_follows_after_one_space(text):
    assert continuation(text) == " " + text.strip()
    assert continuation(continuation(text)) == continuation(text)


def test_gold_is_the_solution_without_the_datasets_notation():
    assert gold_answer(GSM8K) == "She sold 48/2 = 24 clips.\nIn all 48+24 = 72."


def test_a_hash_mark_inside_a_solution_is_kept():
    solution = "Item #### 4 costs 2.\nSo 2+2 = <<2+2=4>>4.\n#### 4"
    assert gold_answer(replace(GSM8K, solution=solution)) == "Item #### 4 costs 2.\nSo 2+2 = 4."


@pytest.mark.parametrize(("item", "gold"), [(ITEM, "scattering"), (CHOICES, "scattering")])
def test_gold_without_a_solution_is_the_answer(item, gold):
    assert gold_answer(item) == gold


def test_no_notation_is_left_in_any_worked_solution():
    assert not re.search(r"<<|>>|####", gold_answer(GSM8K))
