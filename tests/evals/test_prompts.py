"""Prompts of each task, as OLMES and lm-eval render them."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items.item import Item
from evals.items.prompts import render
from evals.items.rendering import continuation, gold_answer
from evals.items.task import first_shots
from evals.items.tasks.mmlu import MMLU

ITEM = Item("s", "arc_easy", "1", "Why is the sky blue?", "scattering", "MIT", "d")
CHOICES = replace(ITEM, choices=("paint", "scattering"), answer_index=1)
GSM8K = replace(
    ITEM,
    task="gsm8k",
    answer="72",
    solution="She sold 48/2 = <<48/2=24>>24 clips.\nIn all 48+24 = <<48+24=72>>72.\n#### 72",
)
BLANK = replace(CHOICES, task="winogrande", question="Ann hired Bo because _ was ill.", choices=("Ann", "Bo"), answer="Bo")
COPA = replace(
    CHOICES,
    task="copa",
    question="The man turned on the faucet. What happened as a RESULT?",
    choices=("The toilet filled.", "Water flowed."),
    answer="Water flowed.",
)


def test_a_question_is_asked_and_its_answer_left_open():
    assert render(ITEM).pairs == [("Question: Why is the sky blue?\nAnswer:", " scattering")]
    assert render(replace(ITEM, passage="Light.")).prompts == ("Light.\n\nQuestion: Why is the sky blue?\nAnswer:",)
    assert render(CHOICES).pairs == [
        ("Question: Why is the sky blue?\nAnswer:", " paint"),
        ("Question: Why is the sky blue?\nAnswer:", " scattering"),
    ]


def test_hellaswag_is_continued_not_asked():
    assert render(replace(ITEM, task="hellaswag", question="A man sits down. He")).prompts == ("A man sits down. He",)


def test_a_blank_is_filled_and_what_follows_is_scored():
    assert render(BLANK).pairs == [("Ann hired Bo because Ann", " was ill."), ("Ann hired Bo because Bo", " was ill.")]
    assert render(BLANK).solved == "Ann hired Bo because Bo was ill."


def test_a_cause_or_a_result_is_linked():
    assert render(COPA).pairs[1] == ("The man turned on the faucet therefore", " water flowed.")
    cause = replace(COPA, question="The man turned on the faucet. What was the CAUSE of this?")
    assert render(cause).prompts[0] == "The man turned on the faucet because"


def test_letters_are_asked_as_olmes_and_as_lm_eval_ask_them():
    rendered = render(CHOICES, "letters")
    assert rendered.prompts[0] == "Question: Why is the sky blue?\n A. paint\n B. scattering\nAnswer:"
    assert rendered.continuations == (" A", " B")
    mmlu = replace(CHOICES, task="mmlu", item_id="college_physics/0001")
    assert render(mmlu, "lm_eval").prompts[0] == (
        "The following are multiple choice questions (with answers) about college physics.\n\n"
        "Why is the sky blue?\nA. paint\nB. scattering\nAnswer:"
    )
    assert (
        render(BLANK, "letters").prompts[0] == "Fill in the blank: Ann hired Bo because ___ was ill.\n A. Ann\n B. Bo\nAnswer:"
    )
    with pytest.raises(ValueError, match="arc_easy/1 has no choices"):
        render(ITEM, "letters")


def test_a_program_goes_on_from_its_prompt_to_the_letter():
    item = replace(ITEM, task="humaneval", question='def f():\n    """One."""\n', solution="    return 1\n", answer="")
    assert render(item).pairs == [('def f():\n    """One."""\n', "    return 1\n")]
    mbpp = replace(ITEM, task="mbpp", question="Write f.", code="assert f() == 1\n", solution="def f(): return 1", answer="")
    assert render(mbpp, "lm_eval").prompts[0].endswith("pass these tests:\n\nassert f() == 1\n[BEGIN]\n")


def test_examples_stand_solved_before_the_question_in_its_own_style():
    shots = [replace(CHOICES, item_id=f"shot-{n}", question=f"Q{n}?") for n in range(3)]
    rendered = render(CHOICES, "letters", first_shots(CHOICES, shots, 2))
    examples = "".join(f"Question: Q{n}?\n A. paint\n B. scattering\nAnswer: B\n\n" for n in range(2))
    assert rendered.prompts[0] == examples + render(CHOICES, "letters").prompts[0]
    with pytest.raises(ValueError, match="arc_easy/1 needs 4 examples, but the shots hold only 3"):
        first_shots(CHOICES, shots, 4)


def test_what_mmlu_is_about_is_said_once_before_all_examples_as_in_lm_eval():
    """lm-eval 0.4.13 with `num_fewshot: 2` on `tasks/mmlu/default`: description, examples, question."""
    item = replace(CHOICES, task="mmlu", item_id="college_physics/0003")
    shots = [replace(item, item_id=f"college_physics/000{n}", question=f"Q{n}?") for n in range(2)]
    assert render(item, "lm_eval", shots).prompts[0] == (
        "The following are multiple choice questions (with answers) about college physics.\n\n"
        "Q0?\nA. paint\nB. scattering\nAnswer: B\n\n"
        "Q1?\nA. paint\nB. scattering\nAnswer: B\n\n"
        "Why is the sky blue?\nA. paint\nB. scattering\nAnswer:"
    )


def test_mmlu_takes_examples_of_its_subject():
    item = replace(CHOICES, task="mmlu", item_id="anatomy/0003")
    shots = [replace(item, item_id=f"{subject}/000{n}") for subject in ("anatomy", "law") for n in range(2)]
    assert [shot.item_id for shot in MMLU.shots(item, shots, 2)] == ["anatomy/0000", "anatomy/0001"]


def test_the_prompt_never_holds_the_answer():
    secret = replace(CHOICES, answer="xyzzy", choices=("paint", "xyzzy"), solution="xyzzy!", code="xyzzy()")
    for task in ("arc_easy", "hellaswag", "gsm8k", "piqa", "boolq", "lambada", "math", "humaneval"):
        assert not any("xyzzy" in prompt for prompt in render(replace(secret, task=task)).prompts)


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
