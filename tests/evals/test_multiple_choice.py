"""Multiple choice: normalizations and accuracy against hand-computed scores."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from unigram import START, UnigramScorer, byte_tokenizer

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.scoring.intervals import wilson
from evals.tasks.benchmarks import evaluate_benchmark

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


def evaluated(items, scorer=None, task=TASK):
    scores, records = evaluate_benchmark(scorer or UnigramScorer(NATS), TOKENIZER, START, task, items, "version", seed=0)
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


def test_accuracy_divides_by_what_a_choice_is_worth_without_the_question():
    class Hinted(UnigramScorer):
        """After the whole question every byte costs half as much when the choice is "bb"."""

        def token_nll(self, sequences):
            nlls = super().token_nll(sequences)
            hinted = [
                bytes(s[1:].astype(np.uint8)).startswith(b"Question") and bytes(s[-2:].astype(np.uint8)) == b"bb"
                for s in sequences
            ]
            return [nll * 0.6 if hint else nll for nll, hint in zip(nlls, hinted, strict=True)]

    scores, records = evaluated([item(0, "aa", "bb", gold=1)], Hinted(NATS))
    outputs = json.loads(records[0].outputs)
    assert outputs["choice_uncond"] == 1, "the question made bb likelier, whatever bytes cost"
    assert scores["accuracy_uncond"].value == 1.0


def test_lm_evals_norm_is_by_characters_and_ours_by_bytes():
    nats = np.full(257, 1.0)
    wide = item(0, "éé", "abc", gold=0)  # 5 bytes and 2 characters, 4 bytes and 3 characters
    _, records = evaluated([wide], UnigramScorer(nats))
    outputs = json.loads(records[0].outputs)
    assert outputs["choice_per_byte"] == 0  # equal per byte: the first
    assert outputs["choice_per_character"] == 1  # 5/2 nats a character against 4/3


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
    assert len(scorer.seen) == 4  # each choice after the question, and after a bare "Answer:"


def test_one_choice_that_does_not_fit_fails_its_item_and_no_other():
    long = item(4, "aa", "b" * 80, gold=0)
    scores, records = evaluated([ITEMS[0], long])
    assert [r.verdict for r in records] == ["graded", "failed"]
    assert (records[1].correct, records[1].bpb) == (None, None)
    assert scores["accuracy"].n == scores["gold_bits_per_byte"].n == scores["chance"].n == 1
    assert scores["accuracy"].attempted == 2
    assert scores["accuracy"].low == wilson(1, 2)[0], "the item without a verdict might be wrong"
    assert scores["accuracy"].high == wilson(2, 2)[1], "or right"


def test_a_number_that_is_none_chooses_nothing():
    """argmin of nats returns the first NaN: a broken model would be right wherever the first choice is right."""
    nats = NATS.copy()
    nats[ord("z")] = np.nan
    broken = item(4, "zz", "aaaa", gold=0)
    scores, records = evaluated([ITEMS[0], broken], UnigramScorer(nats))
    assert [(r.verdict, r.correct, r.bpb) for r in records][1] == ("failed", None, None)
    assert json.loads(records[1].outputs)["reason"] == "the model's log-probability is not a finite number"
    assert (scores["accuracy"].n, scores["accuracy"].attempted) == (1, 2)
    assert all(np.isfinite([s.value, s.low, s.high]).all() for s in scores.values())
    with pytest.raises(ValueError, match="none of 1 items could be scored: the model's log-probability is not a finite number"):
        evaluated([broken], UnigramScorer(nats))
    with pytest.raises(ValueError, match="none of 1 items could be scored: longer than the context"):
        evaluated([item(5, "aa", "b" * 80, gold=0)])


def test_records_say_what_was_asked_of_whom():
    _, records = evaluated([ITEMS[0], replace(ITEMS[0], item_id="x"), replace(ITEMS[0], item_id="y", question="What?")])
    assert {r.checkpoint for r in records} == {"version"}
    assert records[0].prompt_digest == records[1].prompt_digest != records[2].prompt_digest
    assert json.loads(records[0].outputs)["bytes"] == [5, 5]


def test_a_record_says_what_was_scored_what_is_right_and_where_the_item_is_from():
    long = item(4, "aa", "b" * 80, gold=0)
    _, records = evaluated([replace(ITEMS[3], suite="trivia", source_digest="abc"), long])
    outputs = [json.loads(r.outputs) for r in records]
    assert records[0].continuations == (" bb", " aa", " cc", " dd")
    assert records[0].log_probs == (-6.0, -4.0, -6.0, -6.0)
    assert records[0].answer == "aa", "of the choices the likeliest a byte, which `correct` goes by"
    assert (outputs[0]["gold_index"], outputs[0]["gold"]) == (3, "dd")
    assert (records[0].suite, records[0].source_digest) == ("trivia", "abc")
    assert outputs[1]["reason"] and records[1].continuations == (" aa", " " + "b" * 80), "also where nothing was scored"
    assert (records[1].log_probs, records[1].answer) == ((), None)


def test_a_record_of_a_blank_says_what_was_filled_in():
    blank = Item("s", "winogrande", "0", "Ann paid Bo; _ was ill.", "Bo", "MIT", "d", choices=("Ann", "Bo"), answer_index=1)
    (record,) = evaluated([blank], task=TaskSpec("winogrande", "multiple_choice"))[1]
    outputs = json.loads(record.outputs)
    assert (record.continuations, record.answer) == ((" was ill.",) * 2, "Ann")
    assert (outputs["choices"], outputs["gold_index"]) == (["Ann", "Bo"], 1)


def test_an_item_without_choices_is_named():
    with pytest.raises(ValueError, match="quiz is multiple choice, but item 9 has no choices"):
        evaluated([Item("s", "quiz", "9", "Which?", "this", "MIT", "d")])
