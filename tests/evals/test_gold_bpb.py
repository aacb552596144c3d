"""Bits per byte of gold answers against numbers computed by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unigram import START, UnigramScorer, byte_tokenizer

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.scorer import score_continuations

NATS = np.linspace(0.5, 3.0, 257)
TASK = TaskSpec("gsm8k", "gold_bpb")
TOKENIZER = byte_tokenizer()


def item(number: int, solution: str, question: str = "How many?") -> Item:
    return Item("s", "gsm8k", f"{number:03d}", question, "4", "MIT", "d", solution=solution)


def nats(text: str) -> float:
    return sum(NATS[byte] for byte in text.encode())


def test_gold_bits_per_byte_are_those_of_the_solution_alone():
    items = [item(0, "2+2 is <<2+2=4>>4\n#### 4"), item(1, "twice two makes four")]
    scores, records = evaluate_benchmark(UnigramScorer(NATS), TOKENIZER, START, TASK, items, "version", seed=0)
    texts = [" 2+2 is 4", " twice two makes four"]
    expected = [nats(text) / math.log(2) / len(text) for text in texts]
    assert [r.bpb for r in records] == pytest.approx(expected, rel=1e-6)
    assert [r.correct for r in records] == [None, None]
    assert [s.metric for s in scores] == ["gold_bits_per_byte"]
    assert scores[0].value == pytest.approx(sum(map(nats, texts)) / math.log(2) / sum(map(len, texts)), rel=1e-6)
    assert scores[0].n == 2
    assert scores[0].low <= scores[0].value <= scores[0].high


def test_the_last_word_of_a_passage_is_right_when_the_model_would_say_it():
    likeliest = NATS.copy()
    likeliest[ord("a")] = 0.1
    likeliest[ord(" ")] = 0.1  # as likely: both are what a greedy model may say
    words = [Item("s", "lambada", str(n), "He said", word, "MIT", "d") for n, word in enumerate(("a", "aa", "b"))]
    task = TaskSpec("lambada", "gold_bpb")
    scores, records = evaluate_benchmark(UnigramScorer(likeliest), TOKENIZER, START, task, words, "version", seed=0)
    assert [r.correct for r in records] == [True, True, False]
    greedy = next(s for s in scores if s.metric == "accuracy_greedy")
    assert (greedy.value, greedy.n) == (pytest.approx(2 / 3), 3)


def test_a_long_prompt_loses_its_beginning_and_that_is_counted():
    scorer = UnigramScorer(NATS, max_seq_len=20)
    (scored,) = score_continuations(scorer, TOKENIZER, [("abcdefghijklmnopqrstuvwxyz", " end")], START)
    assert scored is not None
    assert scored.truncated_tokens == 26 - 15  # 20 tokens hold the start, four of the ending and 15 of the prompt
    assert scorer.seen[0].tolist() == [START, *b"lmnopqrstuvwxyz end"]
    assert scored.nats == pytest.approx(nats(" end"), rel=1e-6)


@given(st.lists(st.tuples(st.text(max_size=30), st.text(min_size=1, max_size=30)), max_size=6), st.integers(2, 40))
def test_continuations_come_back_in_order_whatever_fits(pairs, max_seq_len):
    scorer = UnigramScorer(NATS, max_seq_len)
    scores = score_continuations(scorer, TOKENIZER, pairs, START)
    assert len(scores) == len(pairs)
    for (head, tail), scored in zip(pairs, scores, strict=True):
        if len(tail.encode()) > max_seq_len - 1:
            assert scored is None
        else:
            assert scored is not None
            assert scored.nats == pytest.approx(nats(tail), rel=1e-5)
            assert scored.num_bytes == len(tail.encode())
            room = max_seq_len - 1 - len(tail.encode())
            assert scored.truncated_tokens == max(0, len(head.encode()) - room)
    assert len(scorer.seen) == len({pair for pair, scored in zip(pairs, scores, strict=True) if scored is not None})


def test_an_answer_longer_than_the_context_is_a_failed_record_with_a_reason():
    scorer = UnigramScorer(NATS, max_seq_len=20)
    items = [item(0, "short"), item(1, "a solution that does not fit")]
    scores, records = evaluate_benchmark(scorer, TOKENIZER, START, TASK, items, "version", seed=0)
    assert [r.verdict for r in records] == ["graded", "failed"]
    assert records[1].bpb is None
    assert "longer than the context" in json.loads(records[1].outputs)["reason"]
    assert scores[0].n == 1


def test_a_task_of_which_nothing_can_be_scored_is_an_error():
    with pytest.raises(ValueError, match="gsm8k: none of 1 items"):
        evaluate_benchmark(UnigramScorer(NATS, 4), TOKENIZER, START, TASK, [item(0, "does not fit")], "version", seed=0)
