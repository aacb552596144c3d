"""Scores by tag equal loops over documents, for any tree of tags."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unigram import byte_tokenizer

from evals.tasks.tagged import LEVANTER_BATCH, Measured, batch_weighted, byte_lengths, tag_scores

LEAVES = ("prose/kjv", "prose/sotu", "code/python/stdlib", "code/python/docs", "code/c")
DOCUMENTS = st.builds(Measured, st.sampled_from(LEAVES), st.floats(0.5, 900), st.integers(1, 500))


@given(st.lists(DOCUMENTS, min_size=1, max_size=12))
def test_every_tag_has_the_ratio_of_its_sums_and_the_mean_of_its_leaves(documents):
    by_name = {(s.task, s.metric): s for s in tag_scores("t", documents, seed=0)}

    def micro(tag: str) -> float:
        below = [d for d in documents if f"{d.tag}/".startswith(tag)]
        return sum(d.bits for d in below) / sum(d.num_bytes for d in below)

    leaves = sorted({d.tag for d in documents})
    tags = {"/".join(leaf.split("/")[:depth]) for leaf in leaves for depth in range(1, len(leaf.split("/")) + 1)}
    for tag in tags:
        below = [leaf for leaf in leaves if f"{leaf}/".startswith(f"{tag}/")]
        assert by_name.pop((f"t/{tag}", "bits_per_byte")).value == pytest.approx(micro(f"{tag}/"))
        if len(below) > 1:
            macro = by_name.pop((f"t/{tag}", "macro_bits_per_byte"))
            assert (macro.value, macro.n) == (pytest.approx(np.mean([micro(f"{leaf}/") for leaf in below])), len(below))
    assert by_name.pop(("t", "micro_bits_per_byte")).value == pytest.approx(micro(""))
    whole = by_name.pop(("t", "macro_bits_per_byte"))
    assert (whole.value, whole.n) == (pytest.approx(np.mean([micro(f"{leaf}/") for leaf in leaves])), len(leaves))
    assert not by_name  # an empty leaf is not a score and not part of a mean


def test_a_tag_is_a_leaf_or_above_leaves_never_both():
    with pytest.raises(ValueError, match="tag prose has both documents and tags below it"):
        tag_scores("t", [Measured("prose", 1.0, 1), Measured("prose/kjv", 1.0, 1)], seed=0)


def test_batches_weigh_as_levanter_does_and_so_not_as_sums_over_sums():
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokens = [np.full(4, 97)] * LEVANTER_BATCH + [np.array([97, 256, 256, 256])] * LEVANTER_BATCH  # 4 bytes, and 1
    nats = [np.full(4, 1.0)] * len(tokens)
    (score,) = batch_weighted("t", tokenizer, tokens, nats, window=4)
    assert score.value == pytest.approx((1.0 + 4.0) / 2 / math.log(2))  # two batches of equal tokens
    assert score.value != pytest.approx((8.0 / 5) / math.log(2))  # all nats over all bytes


def test_byte_lengths_are_those_of_the_text_that_tokens_stand_for():
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    lengths = byte_lengths(tokenizer)
    assert lengths is not None and lengths.tolist() == [1] * 256 + [0]
    text = "naïve 𝄞 text"
    assert lengths[tokenizer.encode(text, add_special_tokens=False).ids].sum() == len(text.encode())
