"""Byte spans against a slow count: any text, and matches among characters of one to four bytes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_contamination import item_table

from benchmarks.rival_policies.datatrove import DatatrovePolicy
from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.channels import channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.item_grams import index_items
from datakit.contamination.protocol import ChannelMatch, Policy
from datakit.contamination.scan import scan
from datakit.contamination.tulu import TuluPolicy
from datakit.text.byte_spans import byte_spans, cut_bytes

QUESTION = "How many ducks’ eggs – 1,200 or more – does Élodie’s old farm 🦆 sell in one ordinary week of winter?"
ALPHABET = "aé漢🦆 ﬁ½́\n\t 0,'’<>="
"""One to four bytes, forms that NFKC makes longer, a combining mark, white space of every kind."""


@given(st.text(alphabet=ALPHABET), st.data())
def test_bytes_are_those_before_each_place(text, data):
    place = st.integers(0, len(text))
    spans = data.draw(st.lists(st.tuples(place, place).map(lambda span: (min(span), max(span))), max_size=5))
    byte_ranges = byte_spans(text, spans)
    assert byte_ranges == [(len(text[:start].encode()), len(text[:end].encode())) for start, end in spans]
    assert [cut_bytes(text, *span) for span in byte_ranges] == [text[start:end] for start, end in spans]


def test_a_place_outside_the_text_is_refused():
    with pytest.raises(ValueError, match="spans from 0 to 4 of a text of 3 characters"):
        byte_spans("abc", [(0, 4)])


CONFIG = ContaminationConfig()
INDEX = index_items(channel_table(item_table({"question": QUESTION})), CONFIG)
FILLER = st.text(alphabet=ALPHABET, max_size=40)


@given(st.lists(st.tuples(FILLER, FILLER), min_size=1, max_size=4))
def test_the_span_of_a_match_is_where_the_item_was_put(pairs):
    texts = [f"{before}\n{QUESTION}\n{after}" for before, after in pairs]
    spans = [(match.document, match.start_byte, match.end_byte) for match in scan(texts, INDEX, CONFIG)]
    starts = [len(before.encode()) + 1 for before, _ in pairs]
    assert spans == [(at, start, start + len(QUESTION.encode())) for at, start in enumerate(starts)]


def matches_of(text: str, policy: Policy) -> Sequence[ChannelMatch]:
    items = item_table({"question": QUESTION, "answer": "Twelve hundred of them, and in the spring some more than that."})
    return policy.index(items, policy.channels(items)).scan([text])


@pytest.mark.parametrize("policy", [MarinPolicy(), TuluPolicy(), GptPolicy(), DatatrovePolicy()], ids=lambda p: p.policy)
def test_characters_before_a_match_move_its_span_by_their_bytes(policy):
    record = f"Question: {QUESTION}\nAnswer: Twelve hundred of them, and in the spring some more than that."
    (plain,), (moved,) = matches_of(f"x\n\n{record}", policy), matches_of(f"漢🦆\n\n{record}", policy)
    shift = len("漢🦆".encode()) - 1
    assert (moved.start_byte, moved.end_byte) == (plain.start_byte + shift, plain.end_byte + shift)
    assert cut_bytes(record, plain.start_byte - 3, plain.end_byte - 3) in record
