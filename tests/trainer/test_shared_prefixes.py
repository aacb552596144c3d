"""Scores of token trees equal forward passes of every sequence alone."""

import functools
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tiny import tiny_model
from tiny_models import quick_model

from trainer.scoring import Scorer
from trainer.shared_prefixes import pack, row_size
from trainer.spec.decoder import Llama3RopeScaling

LONGEST = 200
PLAIN = tiny_model(vocab_size=50, hidden_dim=16, intermediate_dim=32, max_seq_len=LONGEST, initializer_range=0.3)
CONFIGS = {
    "plain": PLAIN,
    "all options": replace(PLAIN, qk_norm=True, sliding_window=5, rope_scaling=Llama3RopeScaling(original_max_seq_len=8)),
}


@functools.cache
def scorer_of(name: str) -> Scorer:
    model = quick_model(CONFIGS[name])
    return Scorer(model, LONGEST, PLAIN.vocab_size, 0)


@functools.cache
def whole_forward(name: str) -> Callable:
    return jax.jit(lambda tokens: jax.nn.log_softmax(scorer_of(name).model(tokens)))


@st.composite
def families(draw: st.DrawFn) -> tuple[list[np.ndarray], list[int]]:
    """Sequences that share beginnings of every length (whole ones too), in any order, and how much of each is asked."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    stems = [rng.integers(0, 50, n).astype(np.int32) for n in draw(st.lists(st.integers(1, 170), min_size=1, max_size=4))]
    sequences = []
    for _ in range(draw(st.integers(1, 12))):
        stem = stems[rng.integers(len(stems))]
        own = rng.integers(0, 50, rng.integers(0, 40))
        sequences.append(np.concatenate([stem[: 1 + rng.integers(len(stem))], own])[:LONGEST].astype(np.int32))
    return sequences, [int(rng.integers(0, len(sequence))) for sequence in sequences]


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=examples(4))
@given(family=families())
def test_the_score_of_a_tail_is_that_of_its_sequence_alone(name, family) -> None:
    sequences, tails = family
    nats, greedy = scorer_of(name).tail_nll(sequences, tails), scorer_of(name).tail_is_greedy(sequences, tails)
    for sequence, tail, nll, is_greedy in zip(sequences, tails, nats, greedy, strict=True):
        padded = np.zeros((1, LONGEST), np.int32)
        padded[0, : len(sequence)] = sequence
        log_probs = np.asarray(whole_forward(name)(jnp.asarray(padded)))[0]
        places = np.arange(len(sequence) - tail, len(sequence))
        assert nll.shape == (tail,)
        np.testing.assert_allclose(nll, -log_probs[places - 1, sequence[places]], atol=1e-4)
        behind = log_probs[places - 1].max(axis=1) - log_probs[places - 1, sequence[places]]
        if is_greedy != (behind == 0).all():  # a tie up to the order of float sums, and no other
            assert behind.max(initial=0.0) < 1e-4


@given(families())
def test_a_row_holds_every_ancestor_and_a_shared_beginning_once(family) -> None:
    sequences, tails = family
    rows = list(pack(sequences, tails))
    sequences_wanted = sorted(wanted.sequence for row in rows for wanted in row.wanted)
    assert sequences_wanted == [i for i, tail in enumerate(tails) if tail]
    for row in rows:
        assert row.used <= row.size
        assert not np.triu(row.reach, 1).any() and row.reach.diagonal().all()
        ways = [tuple(row.tokens[row.reach[place]]) for place in range(row.used)]
        assert len(set(ways)) == len(ways), "two places hold the same way from the first token"
        for wanted in row.wanted:
            sequence = sequences[wanted.sequence]
            ends = np.arange(len(sequence) - len(wanted.places), len(sequence))
            for place, end in zip(wanted.places, ends, strict=True):
                assert ways[place] == tuple(sequence[:end]) and row.positions[place] == end - 1


def test_four_choices_of_a_question_cost_their_own_tokens_alone() -> None:
    question = np.arange(100, dtype=np.int32)
    choices = [np.concatenate([question, [choice, 7, 8]]).astype(np.int32) for choice in (5, 6, 9, 9)]
    (row,) = pack(choices, [3] * 4)
    assert row.used == 100 + 3 * 2, "the last token of a choice is predicted, never read; the fourth choice is the third"


def test_rows_are_powers_of_two_that_hold_several_sequences_while_that_is_cheap() -> None:
    assert [row_size(n) for n in (1, 256, 257, 512, 513, 1024, 1025, 2048, 2049)] == [
        512, 512, 1024, 1024, 2048, 2048, 2048, 2048, 4096,
    ]  # fmt: skip


def test_a_sequence_that_is_all_tail_or_too_long_is_refused() -> None:
    scorer = scorer_of("plain")
    with pytest.raises(ValueError, match="sequence 1 has 3 tokens and a tail of 3; at most 200 can be scored"):
        scorer.tail_nll([np.zeros(3, np.int32)] * 2, [2, 3])
    with pytest.raises(ValueError, match="sequence 0 has 201 tokens"):
        scorer.tail_nll([np.zeros(201, np.int32)], [1])


def test_a_greedy_continuation_is_distinguished_from_one_with_another_token() -> None:
    name = next(iter(CONFIGS))
    continued, start = [3, 1, 4], 3
    for place in range(start, start + 4):
        padded = np.zeros((1, LONGEST), np.int32)
        padded[0, :place] = continued
        continued.append(int(np.asarray(whole_forward(name)(jnp.asarray(padded)))[0, place - 1].argmax()))
    other = [*continued[:-2], (continued[-2] + 1) % PLAIN.vocab_size, continued[-1]]
    flags = scorer_of(name).tail_is_greedy([np.array(each, np.int32) for each in (continued, other, other)], [4, 4, 1])
    assert flags[:2] == [True, False]
