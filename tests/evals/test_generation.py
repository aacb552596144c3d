"""Generated answers, judged by the real judges; the test model returns known texts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.items.tasks.gsm8k import GSM8K
from evals.items.tasks.math import last_boxed, normalized_math
from evals.items.tasks.registry import task_named
from evals.sandbox.run import Limits
from evals.scoring.intervals import wilson
from evals.tasks.generation import evaluate_generation, extract_program
from evals.tasks.generator import Generated


@dataclass(frozen=True)
class ByHeart:
    """Says the next of its texts, whatever it is asked."""

    texts: tuple[str, ...]

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        del stops, max_tokens
        return [Generated(text, "stop" if text else "length", 3, 0) for _, text in zip(prompts, self.texts, strict=True)]


def items(task: str, *answers: str, code: str = "") -> list[Item]:
    return [Item("s", task, f"{n}", f"Q{n}?", answer, "MIT", "d", code=code) for n, answer in enumerate(answers)]


def judged(task: TaskSpec, asked_items: list[Item], *texts: str):
    scores, records = evaluate_generation(ByHeart(texts), task, asked_items, "version", limits=Limits(wall_seconds=60))
    return {score.metric: score for score in scores}, records


def test_an_unparsed_answer_is_neither_right_nor_wrong():
    task = TaskSpec("gsm8k_generate", "generation", items="gsm8k")
    scores, records = judged(
        task, items("gsm8k", "18", "3", "1,000", "7"), "So the answer is 18.", "It is 4.", "#### 1000", "Hm."
    )
    assert [(r.verdict, r.correct) for r in records] == [
        ("graded", True),
        ("graded", False),
        ("graded", True),
        ("unparsed", None),
    ]
    exact = scores["exact_match"]
    assert (exact.value, exact.n, exact.attempted) == (2 / 3, 3, 4)
    assert (exact.low, exact.high) == (wilson(2, 4)[0], wilson(3, 4)[1])
    assert scores["unparsed"].value == 1 / 4


def test_a_record_holds_the_whole_text_the_right_answer_and_where_the_item_is_from():
    text = "so it goes on, " * 400 + "\n#### 18"
    _, records = judged(TaskSpec("gsm8k", "generation"), items("gsm8k", "1,8"), text)
    outputs = json.loads(records[0].outputs)
    assert (records[0].continuations, records[0].answer, outputs["gold"]) == ((text,), "18", "18")
    assert (records[0].suite, records[0].source_digest) == ("s", "d")


def test_a_task_without_one_parsed_answer_has_no_score():
    scores, _ = judged(TaskSpec("gsm8k", "generation"), items("gsm8k", "18"), "no idea")
    assert set(scores) == {"unparsed", "cut_off"}


def test_programs_are_run_against_their_tests():
    task = TaskSpec("mbpp_run", "program", items="mbpp", style="lm_eval")
    programs = items("mbpp", "", "", "", code="assert f(2) == 4\n")
    texts = ("```python\ndef f(x): return x * x\n```", "def f(x): return x", "")
    scores, records = judged(task, programs, *texts)
    assert [(r.verdict, r.correct) for r in records] == [("graded", True), ("graded", False), ("unparsed", None)]
    assert "AssertionError" in json.loads(records[1].outputs)["detail"]
    assert scores["pass_at_1"].value == 1 / 2


def test_a_humaneval_completion_goes_on_from_its_prompt():
    item = Item("s", "humaneval", "HumanEval/0", "def f():\n", "", "MIT", "d", code="assert f() == 1\n")
    scores, _ = judged(TaskSpec("humaneval_run", "program", items="humaneval"), [item], "    return 1\n")
    assert scores["pass_at_1"].value == 1.0


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        ("gsm8k", "She has $1,234.50 left.\n#### 1,234.50", "1234.5"),
        ("gsm8k", "3 and 4 make 7. So the answer is 7. Then 9.", "7"),
        ("gsm8k", "first 3, then 12 dollars", "12"),
        ("gsm8k", "none", None),
        ("math", "Final Answer: The final answer is $\\frac12$. I hope it is correct.", "\\frac{1}{2}"),
        ("math", "so $x = \\boxed{\\frac{1}{\\sqrt{2}}}$ and $\\boxed{3 \\text{ cm}}$", "3"),
        ("math", "\\boxed{1", None),
        ("lambada", ' "signs", he said', "signs"),
        ("lambada", "  ", None),
    ],
)
def test_answers_are_found_where_they_are_stated(task, text, answer):
    assert task_named(task).extract(text) == answer


@given(st.integers(-(10**9), 10**9))
def test_a_number_is_found_however_it_is_written(number):
    assert GSM8K.extract(f"#### {number:,}") == GSM8K.normalize(str(number)) == str(number)


@given(st.text(alphabet="ab{}\\ ", max_size=12))
def test_boxes_are_matched_or_none(text):
    boxed = last_boxed(f"\\boxed{{{text}}}")
    assert boxed is None or boxed.count("{") == boxed.count("}")


@pytest.mark.parametrize(
    ("one", "other"), [("x = 5", "5"), ("\\dfrac{1}{2}", "\\frac12"), ("12,345", "12345"), ("90^\\circ", "90")]
)
def test_answers_that_mean_the_same_are_equal(one, other):
    assert normalized_math(one) == normalized_math(other)


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("\\text{common}", "common"),
        ("\\text{comma}", "comma"),
        ("\\leftarrow", "\\leftarrow"),
        ("\\left(2, 3\\right]", "(2,3]"),
        ("5cm", "5"),
        ("12 \\text{ cm}^2", "12"),
        ("7 \\text{ square units}", "7"),
        ("\\$4.50 \\text{ dollars}", "4.50"),
        ("x^2", "x^2"),
    ],
)
def test_units_are_left_out_where_they_are_words(answer, kept):
    assert normalized_math(answer) == kept


def test_a_program_is_a_block_or_what_completes_the_prompt():
    assert extract_program("p\n", "```python\nx = 1\n```\nthat was it") == "x = 1\n"
    assert extract_program("p\n", "x = 1") == "p\nx = 1"
    assert extract_program("p\n", " \n") is None
