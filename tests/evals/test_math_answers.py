"""Answers of MATH and GSM8K: equal as a person labelled them, whatever a model writes, within the sandbox's limits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items.tasks.gsm8k import extract_number, plain_number
from evals.items.tasks.math import normalized_math
from evals.tasks.math_equal import equal_pairs

PAIRS = [
    (line[0] == "=", *map(str.strip, line[2:].split("||")))
    for line in Path(__file__).with_name("math_pairs.txt").read_text().splitlines()
    if line[0] in "=!"
]


def test_pairs_are_equal_as_a_person_labelled_them():
    verdicts = equal_pairs([(normalized_math(answer), normalized_math(gold)) for _, answer, gold in PAIRS])
    wrong = [pair for pair, verdict in zip(PAIRS, verdicts, strict=True) if pair[0] != verdict]
    assert len(PAIRS) >= 64
    assert wrong == []


HOSTILE = [
    "9^{9^{9^{9}}}", "(10^9)!", "\\binom{10^9}{10^8}", "(" * 400 + "1" + ")" * 400, "\\sqrt" * 200 + "2", "{" * 900,
    "2^{-10^{12}}", "(x+1)^{1000}(x-1)^{1000}", "\\log_{1}" * 100 + "2", "1" + "0" * 900, "\\frac" * 300, "|" * 301,
    "__import__('os').system('x')", "\\begin{pmatrix}" + "1&" * 400, "x!!!!!!!!!!", "\\sin" * 200 + "x", "\\pm" * 50, "\0",
]  # fmt: skip


def test_hostile_answers_are_wrong_and_cost_the_others_nothing():
    pairs = [pair for answer in HOSTILE for pair in (("0.5", "\\frac{1}{2}"), (answer, "7"))]
    assert equal_pairs(pairs) == [True, False] * len(HOSTILE)


def test_an_answer_that_ends_the_whole_batch_costs_the_others_nothing():
    """Thirty nested roots of a product keep SymPy in one operation for longer than any signal waits for."""
    costly = "+".join(f"\\sqrt{{{n}+\\sqrt{{{n + 1}}}}}" for n in range(2, 40))
    assert equal_pairs([("1", "\\frac{2}{2}"), (costly, f"{costly}+1"), ("4", "2^2")]) == [True, False, True]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So it is 2/3", "2/3"), ("#### 1e3", "1000"), ("#### 1/2", "0.5"), ("#### 10/2", "5"), ("The answer is: 3/4.", "0.75"),
        ("on 1/2/2020", "2020"), ("#### 1,000,000", "1000000"), ("#### -$5.50", "-5.5"), ("#### $-5.50", "-5.5"),
        ("12 eggs", "12"), ("1.5e-3", "0.0015"), ("5/0", "5/0"), ("#### 18.00", "18"), ("1e3x", "3"), ("none", None),
    ],
)  # fmt: skip
def test_a_number_is_read_whole(text, number):
    assert extract_number(text) == number


@given(st.fractions())
def test_equal_numbers_have_one_form(value):
    form = plain_number(str(value))
    assert plain_number(form) == form
    assert plain_number(f"{value.numerator * 3}/{value.denominator * 3}") == form
