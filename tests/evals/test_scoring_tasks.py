"""Task scores of a unigram model, which do not depend on context or question order."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaced import spaced_tokenizer
from tokenizers import models
from unigram import START, UnigramScorer, byte_tokenizer, bytes_to_characters

from evals.items.item import Item
from evals.items.rendering import gold_answer
from evals.items.stage import TaskSpec
from evals.scoring.intervals import wilson
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.perplexity import document_nats, unigram_entropy_nats
from evals.tasks.scorer import score_continuations

TOKENIZER = byte_tokenizer()
QUIZ = TaskSpec("quiz", "multiple_choice")
DOCUMENTS = st.lists(st.lists(st.integers(0, 255), max_size=70), min_size=1, max_size=6)


def question(number: int, choices: tuple[str, ...], gold: int) -> Item:
    return Item("s", "quiz", f"{number:03d}", "Which?", choices[gold], "MIT", "d", choices=choices, answer_index=gold)


def model_of(probabilities: np.ndarray, max_seq_len: int = 64) -> UnigramScorer:
    return UnigramScorer(-np.log(probabilities / probabilities.sum()), max_seq_len)


@given(DOCUMENTS, st.integers(2, 20), st.integers(0, 1000))
def test_documents_cost_the_sum_of_their_tokens_in_any_context(documents, max_seq_len, seed) -> None:
    scorer = model_of(np.random.default_rng(seed).uniform(0.01, 1, 257), max_seq_len)
    arrays = [np.array(document, np.int64) for document in documents]
    wanted = [float(scorer.nats[array].sum()) for array in arrays]  # an empty document costs nothing
    assert document_nats(scorer, arrays, START) == pytest.approx(wanted, rel=1e-5)
    scored = np.concatenate([np.zeros(0, np.int64), *(window[1:] for window in scorer.seen)])
    assert scored.tolist() == [token for document in documents for token in document]  # each once, in order


@given(DOCUMENTS.filter(any), st.integers(0, 1000))
def test_no_unigram_model_beats_the_entropy_and_the_counts_reach_it(documents, seed) -> None:
    arrays = [np.array(document, np.int64) for document in documents]
    total = sum(array.size for array in arrays)
    entropy = unigram_entropy_nats(arrays)
    other = model_of(np.random.default_rng(seed).uniform(0.01, 1, 257))
    assert document_nats(other, arrays, START).sum() / total >= entropy - 1e-5
    counts = np.bincount(np.concatenate(arrays), minlength=257).astype(float)
    best = model_of(np.maximum(counts, 1e-12))
    assert document_nats(best, arrays, START).sum() / total == pytest.approx(entropy, abs=1e-5)


def test_documents_with_a_number_that_is_none_have_no_score() -> None:
    nats = np.ones(257)
    nats[7] = np.inf
    documents = [np.array([1, 2, 3]), np.array([4, 7])]
    with pytest.raises(ValueError, match="1 of 2 documents have log-probabilities that are not finite numbers"):
        document_nats(UnigramScorer(nats), documents, START)


def test_entropy_of_a_fair_coin_is_a_bit() -> None:
    assert unigram_entropy_nats([np.array([0, 1]), np.array([1, 0])]) == pytest.approx(math.log(2))
    assert unigram_entropy_nats([np.array([7, 7, 7])]) == 0


def test_the_prompts_end_is_kept_and_equal_pairs_are_asked_once() -> None:
    scorer = UnigramScorer(np.ones(257), max_seq_len=10)
    pairs = [("0123456789", " ab"), ("x", " c"), ("0123456789", " ab")]
    first, short, again = score_continuations(scorer, TOKENIZER, pairs, START)
    assert [bytes(window[1:].tolist()) for window in scorer.seen] == [b"456789 ab", b"x c"]
    assert first == again and first is not None and short is not None
    assert (first.nats, first.num_bytes, first.truncated_tokens) == (3.0, 3, 4)
    assert (short.nats, short.num_bytes, short.truncated_tokens) == (2.0, 2, 0)


def test_an_ending_has_the_tokens_that_it_has_behind_its_prompt() -> None:
    """SentencePiece puts a space before every text; the ending would begin with two."""
    tokenizer, scorer = spaced_tokenizer("the", "cat", "sat"), UnigramScorer(np.ones(400))
    pairs = [("the cat", " sat"), ("the cat", " dog é"), ("cat\n", "sat"), ("the", "  cat")]
    scored = score_continuations(scorer, tokenizer, pairs, START)
    assert [window[1:].tolist() for window in scorer.seen] == [tokenizer.encode("".join(pair)).ids for pair in pairs]
    assert [score.num_bytes for score in scored if score is not None] == [4, 7, 3, 5]


def test_an_ending_is_read_alone_where_tokens_go_over_the_ends_of_lines() -> None:
    line_end = bytes_to_characters()[ord("\n")]
    tokenizer = byte_tokenizer()
    vocab = tokenizer.get_vocab() | {f"{line_end}a": 257}
    tokenizer.model = models.BPE(vocab=vocab, merges=[(line_end, "a")])  # pyrefly: ignore
    scorer = UnigramScorer(np.ones(258))
    score_continuations(scorer, tokenizer, [("x\n", "a b")], START)
    assert scorer.seen[0][1:].tolist() == [*b"x\na b"]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_model_that_likes_one_letter_is_right_where_that_letter_is(golds: list[int]) -> None:
    probabilities = np.ones(257)
    probabilities[ord("b")] = 50.0
    items = [question(i, ("aa", "bb", "cc", "dd"), gold) for i, gold in enumerate(golds)]
    scores, records = evaluate_benchmark(model_of(probabilities), TOKENIZER, START, QUIZ, items, "version", seed=0)
    by_metric = {score.metric: score for score in scores}
    right = golds.count(1)
    for metric in ("accuracy", "accuracy_per_byte"):
        assert by_metric[metric].value == right / len(golds)
        assert (by_metric[metric].low, by_metric[metric].high) == wilson(right, len(golds))
    assert by_metric["chance"].value == 0.25
    assert [record.correct for record in records] == [gold == 1 for gold in golds]
    assert {json.loads(record.outputs)["choice"] for record in records} == {1}


def test_a_uniform_model_needs_the_same_bits_for_every_answer() -> None:
    items = [question(i, ("a", "bbb", "ccccc"), i) for i in range(3)]
    scores, _ = evaluate_benchmark(model_of(np.ones(257)), TOKENIZER, START, QUIZ, items, "version", seed=0)
    gold = next(score for score in scores if score.metric == "gold_bits_per_byte")
    assert (gold.value, gold.low, gold.high) == pytest.approx([math.log2(257)] * 3, rel=1e-5)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=5))
def test_gsm8k_tags_and_final_line_are_no_part_of_the_gold_answer(sums: list[tuple[int, int]]) -> None:
    tagged = [f"Then {a}+{b} = <<{a}+{b}={a + b}>>{a + b}." for a, b in sums]
    plain = [f"Then {a}+{b} = {a + b}." for a, b in sums]
    answer = str(sum(sums[-1]))
    solution = "\n".join([*tagged, f"#### {answer}"])
    item = Item("s", "gsm8k", "1", "How many?", answer, "MIT", "d", solution=solution)
    assert gold_answer(item) == "\n".join(plain)
