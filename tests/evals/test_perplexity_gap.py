"""Bits of two models compared byte by byte, whatever their tokenizers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaced import BOS, spaced_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from unigram import START, UnigramScorer, byte_tokenizer, bytes_to_characters

from evals.reports.perplexity_gap import Reader, byte_bits, perplexity_gap
from evals.tasks.perplexity import HeldoutDocument


def pair_tokenizer() -> Tokenizer:
    """Bytes, and "th" as one token (id 256); `START` would be 257."""
    vocab = {character: byte for byte, character in bytes_to_characters().items()} | {"th": 256, "<|endoftext|>": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


BYTES = Reader(UnigramScorer(np.linspace(1.0, 2.0, 257)), byte_tokenizer(), START)
PAIRS = Reader(UnigramScorer(np.linspace(0.5, 3.0, 258)), pair_tokenizer(), 257)


SPACED = Reader(UnigramScorer(np.linspace(0.5, 3.0, 400)), spaced_tokenizer("the", "year"), BOS)
"""A tokenizer of SentencePiece's kind: its tokens are words with their space, and bytes for what has no token."""


@given(st.lists(st.text(alphabet="the ño\n", min_size=1, max_size=90), min_size=1, max_size=4))
def test_bits_of_bytes_add_up_to_bits_of_tokens(texts):
    for reader in (BYTES, PAIRS, SPACED):
        for text, bits in zip(texts, byte_bits(reader, texts), strict=True):
            ids = reader.tokenizer.encode(text, add_special_tokens=False).ids
            assert bits.size == len(text.encode())
            assert bits.sum() == pytest.approx(sum(reader.scorer.nats[i] for i in ids) / math.log(2), rel=1e-5)


def test_two_tokenizers_are_compared_over_the_same_bytes_and_the_worst_comes_first():
    documents = [HeldoutDocument("a", "prose", "the " * 30, "x"), HeldoutDocument("b", "code", "o" * 100 + "ñ" * 20, "y")]
    summaries, gaps = perplexity_gap(BYTES, PAIRS, documents)
    whole = {s.tag: s for s in summaries}
    assert list(whole) == ["", "code", "code/y", "prose", "prose/x"]
    assert whole[""].second - whole[""].first == pytest.approx(whole[""].gap)
    total = sum(g.gap * g.num_bytes for g in gaps)
    assert whole[""].gap == pytest.approx(total / sum(g.num_bytes for g in gaps))
    assert gaps[0].gap * gaps[0].num_bytes >= gaps[1].gap * gaps[1].num_bytes
    code = next(g for g in gaps if g.id == "b")
    assert "ñ" in code.stretch, "bytes of high numbers cost the second model more"


def test_words_and_bytes_of_sentencepiece_stand_where_they_are_in_the_text():
    text = "the  ñ the"
    (bits,) = byte_bits(SPACED, [text])
    nats = dict(zip(*(SPACED.tokenizer.encode(text).tokens, SPACED.tokenizer.encode(text).ids), strict=True))
    cost = {token: SPACED.scorer.nats[number] / math.log(2) for token, number in nats.items()}
    word, last = cost["\u2581the"], text.encode().rindex(b" the")
    assert bits[:3] == pytest.approx([word / 3] * 3), "the space before the first word is not in the text"
    assert bits[last:] == pytest.approx([word / 4] * 4)
    assert bits[5:7].sum() == pytest.approx(cost["<0xC3>"] + cost["<0xB1>"])


def test_a_model_has_no_gap_to_itself():
    summaries, gaps = perplexity_gap(BYTES, BYTES, [HeldoutDocument("a", "prose", "once upon a time", "x")])
    assert summaries[0].gap == gaps[0].gap == 0.0


def test_a_tokenizer_that_changes_the_text_is_refused():
    from tokenizers import normalizers

    changed = byte_tokenizer()
    changed.normalizer = normalizers.Replace("ab", "a")
    with pytest.raises(ValueError, match="cannot be aligned"):
        byte_bits(Reader(BYTES.scorer, changed, START), ["abc"])
    lacking = Reader(SPACED.scorer, spaced_tokenizer("the", with_bytes=False), BOS)
    with pytest.raises(ValueError, match="cannot be aligned"):
        byte_bits(lacking, ["the ñ"])
    with pytest.raises(ValueError, match="no document"):
        perplexity_gap(BYTES, BYTES, [])
