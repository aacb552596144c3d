"""The contamination scan against its definition, word by word, and against itself without compiled bounds."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_scan import item_table, slow_scan

from datakit.contamination.bounds import placements_that_may_align
from datakit.contamination.channels import channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.item_grams import index_items
from datakit.contamination.scan import scan

VOCABULARY = ["river", "stone", "of", "7", "12", "light", "a"]
SENTENCE = st.lists(st.sampled_from(VOCABULARY), min_size=0, max_size=30).map(" ".join)
MANY_WORDS = [*VOCABULARY, "harbour", "copper", "seldom", "window", "gather", "to", "candle", "winter", "silver", "engine"]
ANSWERS = ["", "river", "of", "7", "a", "stone light", "copper to", "candle to river"]


PARITY = ContaminationConfig(
    gap_words=2,
    fragment_words=7,
    partial_run_words=9,
    long_run_words=12,
    partial_words=4,
    common_items=1,
    ignored_items=3,
    min_template_words=500,
    max_aligned_words=20,
    max_repeats=9,
    align_slack=1,
    short_aligned_share=0.6,
    aligned_share=0.5,
    answered_share=0.4,
    min_long_words=3,
    answer_gap_words=1,
    min_answer_information=0.8,
    max_answered_words=14,
)


def assert_scans_agree(texts: list[str], questions: list[str], answers: list[str]) -> None:
    channels = channel_table(item_table(*({"question": q, "answer": a} for q, a in zip(questions, answers, strict=True))))
    question_of = dict(channels.with_row_index("row").filter(channel="question").select("row", "item").rows())
    matches = {
        (m.document, question_of[m.channel]): (m.tier, m.score, m.longest_run)
        for m in scan(texts, index_items(channels, PARITY), PARITY)
    }
    expected = slow_scan(texts, questions, answers, PARITY)
    assert matches.keys() == expected.keys()
    for pair, (tier, score, run) in expected.items():
        assert matches[pair] == (tier, pytest.approx(score, abs=1e-4), run)


@given(st.lists(SENTENCE.filter(bool), min_size=1, max_size=6), st.lists(SENTENCE, min_size=1, max_size=3), st.randoms())
def test_the_scan_agrees_with_the_definition_word_by_word(questions, fillers, choose: random.Random):
    texts = [f"{filler} {choose.choice(questions)[choose.randrange(12) :]} {filler[5:]}" for filler in fillers]
    assert_scans_agree(texts, questions, [choose.choice(ANSWERS) for _ in questions])


@given(st.lists(st.permutations(MANY_WORDS).map(lambda words: words[:17]), min_size=2, max_size=5), st.randoms())
def test_questions_with_many_edits_and_their_answers_agree_with_the_definition(orders, choose: random.Random):
    """A third of the words replaced, then up to two other words, then the answer, whole or in part."""
    questions = [" ".join(order[: choose.randrange(5, 18)]) for order in orders]
    answers = [choose.choice(ANSWERS) for _ in questions]
    texts = []
    for question, answer in zip(questions, answers, strict=True):
        words = [word if choose.random() < 0.65 else "other" for word in question.split()]
        between = ["other"] * choose.randrange(3)
        texts.append(" ".join(["before", *words, *between, *answer.split()[choose.randrange(2) :], "behind"]))
    assert_scans_agree(texts, questions, answers)


def every_placement(*given):
    """The places of all seeds: a least score of -1 rejects none."""
    *others, least, slack = given
    return placements_that_may_align(*others, np.full_like(least, -1.0), slack)


@given(st.lists(SENTENCE, min_size=1, max_size=6), st.lists(SENTENCE, min_size=1, max_size=3), st.randoms())
def test_what_a_compiled_bound_rejects_scores_nothing(questions, fillers, choose: random.Random):
    """The same matches as if every place were scored; and the bounds do reject places."""
    texts = [f"{filler} {choose.choice(questions)[choose.randrange(40) :]} {filler[5:]}" for filler in fillers]
    rules = ContaminationConfig(
        gap_words=2, fragment_words=7, partial_run_words=9, long_run_words=12, partial_words=4, min_template_words=8
    )
    index = index_items(channel_table(item_table(*({"question": question} for question in questions))), rules)
    found = scan(texts, index, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datakit.contamination.scan.may_match", lambda pairs, *_: np.ones(len(pairs), np.bool_))
        patch.setattr("datakit.contamination.alignment.placements_that_may_align", every_placement)
        assert scan(texts, index, rules) == found
