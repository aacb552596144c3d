"""Rows are cut to the longest of an iteration, in few sizes, and the cut changes no log-probability."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_rewards import learner
from tiny_models import quick_model

from post_training.log_probs import token_log_probs
from post_training.rollouts import Drawn
from post_training.rows import filled, rounded, together
from tests.tiny import tiny_model
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec

COMPUTE = Compute("float32", "blocked", 128, one_by_one=True, by_rows=True, remat="none", unrolled=True, notes=())


@given(st.integers(1, 5000), st.data())
def test_a_rounded_size_holds_the_row_in_one_of_eight_sizes(most: int, data: st.DataObject) -> None:
    longest = data.draw(st.integers(1, most))
    found = rounded(longest, most)
    assert longest <= found <= most
    assert rounded(found, most) == found
    assert len({rounded(each, most) for each in range(1, most + 1)}) <= 8


@pytest.mark.parametrize("most", [128, 256, 384, 2048, 4096, 32768])
def test_sizes_are_those_that_attention_of_accelerators_takes(most: int) -> None:
    assert all(rounded(longest, most) % 128 == 0 for longest in range(1, most + 1, 7))


def drawn() -> Drawn:
    """Four rows of at most 11 of 24 positions."""
    rng = np.random.default_rng(0)
    tokens, starts, lengths = rng.integers(1, 61, (4, 24)), np.array([3, 6, 1, 4], np.int32), np.array([5, 11, 7, 8], np.int32)
    floats = [rng.normal(size=(4, 20)).astype(np.float32) for _ in range(4)]
    kept = rng.integers(0, 255, (4, 20, 8)).astype(np.uint8)
    return Drawn(tokens.astype(np.int32), starts, lengths, np.ones(4, bool), *floats[:3], floats[3], kept)


def test_shortened_arrays_hold_all_tokens_of_every_row() -> None:
    whole, short = drawn(), drawn().shortened(24)
    assert short.tokens.shape == (4, 12) and short.log_probs.shape == (4, 11) == short.mask.shape
    assert short.mask.sum(axis=1).tolist() == (whole.lengths - whole.prompt_lengths).tolist()
    for name in ("tokens", "log_probs", "before", "entropy", "reference", "kept"):
        assert (getattr(short, name) == getattr(whole, name)[:, : getattr(short, name).shape[1]]).all(), name


def test_the_cut_changes_no_log_probability() -> None:
    model, whole, short = quick_model(tiny_model(initializer_range=0.2, vocab_size=61), 1), drawn(), drawn().shortened(24)
    found = [
        np.asarray(token_log_probs(model, jnp.asarray(each.tokens), each.prompt_lengths, each.mask.shape[1])[0]) * each.mask
        for each in (whole, short)
    ]
    assert np.abs(found[0][:, :11] - found[1]).max() <= 1e-5
    assert not found[0][:, 11:].any() and (found[1] < 0).sum() == short.mask.sum()


def test_filled_rows_are_prompt_and_completion() -> None:
    prompts = np.array([[5, 6, 0, 0, 0], [7, 0, 0, 0, 0]])
    rows = filled(prompts, np.array([2, 1]), np.array([[1, 2, 9], [3, 4, 8]]), np.array([4, 4]))
    assert rows.tolist() == [[5, 6, 1, 2, 0], [7, 3, 4, 8, 0]]
    assert prompts[0].tolist() == [5, 6, 0, 0, 0]


def test_attention_takes_all_rows_at_once_only_where_their_scores_are_few() -> None:
    run = learner().run
    assert not together(COMPUTE, run).one_by_one
    assert together(COMPUTE, long_rows(run, 4096)).one_by_one


def long_rows(run: RunSpec, seq_len: int) -> RunSpec:
    return replace(run, model=replace(run.model, max_seq_len=seq_len), seq_len=seq_len)
