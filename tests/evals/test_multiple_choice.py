import json
import math
from dataclasses import replace

import numpy as np
import pytest
from unigram import START, UnigramScorer, byte_tokenizer

from evals.benchmarks import evaluate_benchmark
from evals.intervals import wilson
from evals.items import Item
from evals.stage import TaskSpec

TASK = TaskSpec("quiz", "multiple_choice")
TOKENIZER = byte_tokenizer()
NATS = np.full(257, 2.0)
NATS[ord("a")] = 1.0
"""A model that finds an `a` likely (1 nat) and every other byte less so (2 nats)."""


def item(number: int, *choices: str, gold: int) -> Item:
    return Item("s", "quiz", f"{number:03d}", "Which?", choices[gold], "MIT", "d", choices=choices, answer_index=gold)


ITEMS = [
    item(0, "aaaa", "bbbb", gold=0),  # right either way: equally long, and likelier
    item(1, "b", "aaaaaa", gold=0),  # right by sum (2+2 nats against 2+6), wrong by byte (2 against 8/7)
    item(2, "b", "aaaaaa", gold=1),  # the other way round
    item(3, "bb", "aa", "cc", "dd", gold=3),  # wrong either way
]


def evaluated(items, scorer=None):
    scores, records = evaluate_benchmark(scorer or UnigramScorer(NATS), TOKENIZER, START, TASK, items, "version", seed=0)
    return {s.metric: s for s in scores}, records


def test_accuracy_by_sum_and_by_byte_differ_where_lengths_do():
    scores, records = evaluated(ITEMS)
    outputs = [json.loads(r.outputs) for r in records]
    assert [o["choice"] for o in outputs] == [0, 0, 0, 1]
    assert [o["choice_per_byte"] for o in outputs] == [0, 1, 1, 1]
    assert scores["accuracy"].value == 2 / 4
    assert scores["accuracy_per_byte"].value == 2 / 4
    assert [r.correct for r in records] == [True, False, True, False]
    assert (scores["accuracy"].low, scores["accuracy"].high) == wilson(2, 4)


def test_chance_is_the_mean_over_items_of_one_over_the_choices():
    scores, _ = evaluated(ITEMS)
    assert scores["chance"].value == pytest.approx((0.5 + 0.5 + 0.5 + 0.25) / 4)


def test_gold_bits_per_byte_are_those_of_the_right_choice():
    scores, records = evaluated(ITEMS)
    expected = [(2 + 4) / 5, (2 + 2) / 2, (2 + 6) / 7, (2 + 4) / 3]
    assert [r.bpb for r in records] == pytest.approx([nats / math.log(2) for nats in expected], rel=1e-6)
    assert scores["gold_bits_per_byte"].value == pytest.approx((6 + 4 + 8 + 6) / (5 + 2 + 7 + 3) / math.log(2), rel=1e-6)


def test_the_same_choice_after_the_same_prompt_is_scored_once():
    scorer = UnigramScorer(NATS)
    evaluated([ITEMS[1], ITEMS[2]], scorer)
    assert len(scorer.seen) == 2


def test_one_choice_that_does_not_fit_fails_its_item_and_no_other():
    long = item(4, "aa", "b" * 80, gold=0)
    scores, records = evaluated([ITEMS[0], long])
    assert [r.verdict for r in records] == ["graded", "failed"]
    assert (records[1].correct, records[1].bpb) == (None, None)
    assert scores["accuracy"].n == scores["gold_bits_per_byte"].n == scores["chance"].n == 1


def test_records_say_what_was_asked_of_whom():
    _, records = evaluated([ITEMS[0], replace(ITEMS[0], item_id="x"), replace(ITEMS[0], item_id="y", question="What?")])
    assert {r.checkpoint for r in records} == {"version"}
    assert records[0].prompt_digest == records[1].prompt_digest != records[2].prompt_digest
    assert json.loads(records[0].outputs)["bytes"] == [5, 5]


def test_an_item_without_choices_is_named():
    with pytest.raises(ValueError, match="quiz is multiple choice, but item 9 has no choices"):
        evaluated([Item("s", "quiz", "9", "Which?", "this", "MIT", "d")])
