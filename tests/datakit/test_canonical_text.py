"""Canonical text: case, punctuation, Unicode forms, and the way back to the original characters."""

import html
import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import datakit.text.canonical_text as canonical_text
from datakit.text.canonical_text import WordPlaces, canonical_batch, canonical_bytes, token_spans, word_spans

# the characters that normalisation treats specially, mixed into arbitrary text
CHARACTERS = st.one_of(
    st.sampled_from("&;#"),
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(" ,'’<>019aAé́  ﬁﬀςΣ가\x1c\x85\n`_-\u200b\u00ad\ufe0f"),
)
ENTITIES = st.sampled_from(
    ["&amp;", "&#39;", "&nbsp;", "&#x41;", "&#10;", "&#0;", "&#55296;", "&eacute;", "&#769;", "&#44;", "&lt;&lt;", "&gt;&gt;"]
)
TEXT = st.lists(st.one_of(st.text(CHARACTERS, max_size=20), ENTITIES), max_size=6).map("".join)


def words(text: str) -> list[str]:
    return canonical_bytes(text).decode().split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Janet’s ducks, Janet's DUCKS!", "janets ducks janets ducks"),
        ("$<<9*2=18>>18 every day", "18 every day"),
        ("1,234,567 and 1,23 and a,b", "1234567 and 1 23 and a b"),
        ("16-3-4 = 9.5", "16 3 4 9 5"),
        ("ﬁne Straße ÉCOLE", "fine strasse école"),
        ("snake_case `code`—dash", "snake case code dash"),
        ("cout << a >> b; 1 << 2 >> 3", "cout a b 1 2 3"),
        ("Tom&#39;s &quot;caf&eacute;&quot;&nbsp;costs 1&#44;200 &#x24;", "toms café costs 1200"),
        ("$&lt;&lt;9 * 2=18&gt;&gt;18 every day", "18 every day"),
        ("&amp;amp; once only, R&D; and a=1&copy=2", "amp once only r d and a 1 copy 2"),
        ("", ""),
    ],
)
def test_formatting_is_taken_away(text, expected):
    assert words(text) == expected.split()


@given(TEXT)
def test_each_word_has_a_span_that_holds_it(text):
    spans = word_spans(text)
    assert len(spans) == len(words(text))
    for (start, end), word in zip(spans.tolist(), words(text), strict=True):
        assert word in words(text[start:end])


@given(TEXT, st.integers(1, 12))
def test_places_found_piece_by_piece_are_those_of_the_whole_text(text, piece_characters):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical_text, "_PIECE_CHARACTERS", piece_characters)
        places = WordPlaces(text)
        assert [list(places.span(word)) for word in range(len(words(text)))] == word_spans(text).tolist()
        with pytest.raises(IndexError, match=f"word {len(words(text))} of a text of"):
            places.span(len(words(text)))


@given(
    TEXT | st.text(st.sampled_from(" \n\t\x0b\x1c\x1f,,'aZ09_@`{&;<>=-"), max_size=60),
    st.lists(st.integers(0, 99), max_size=6),
)
def test_chosen_words_have_the_spans_that_they_have_among_all(text, chosen):
    spans = word_spans(text).tolist()
    numbers = [number % len(spans) for number in chosen] if spans else []
    assert [list(span) for span in token_spans(text, numbers)] == [spans[number] for number in numbers]
    with pytest.raises(IndexError, match=f"word {len(spans)} of a text of {len(spans)}"):
        token_spans(text, [*numbers, len(spans)])


def test_a_tag_that_appears_by_blanking_another_stays():
    text = "so <<<<1+1=2>>3=3>> it is"
    places = WordPlaces(text)
    assert [text[slice(*places.span(word))] for word in range(len(words(text)))] == ["so", "3=3>>", "3=3>>", "it", "is"]


@given(TEXT, TEXT)
def test_white_space_is_a_border_that_nothing_crosses(left, right):
    if not any(bracket in left + right for bracket in ("<", "&lt;")):
        assert words(f"{left}\n{right}") == words(left) + words(right)


@given(st.text(st.sampled_from("abcé 12'.,!-"), max_size=40))
def test_case_and_repeated_space_do_not_matter(text):
    assert words(text.upper().replace(" ", " \n\t ")) == words(text)


def slow_fold(text: str) -> str:
    """NFKC_Casefold by the character: no format characters, none that Unicode calls default-ignorable."""
    blocks = (
        range(0x180B, 0x1810),
        range(0x2060, 0x2070),
        range(0xFE00, 0xFE10),
        range(0xFFF0, 0xFFF9),
        range(0xE0000, 0xE1000),
    )
    ignorable = {*"\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0", *(chr(code) for block in blocks for code in block)}
    seen = "".join(c for c in text if unicodedata.category(c) != "Cf" and c not in ignorable)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())


def slow_words(text: str) -> list[str]:
    """The definition, a step after the other, over the whole text."""
    entity = re.compile("&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
    text = slow_fold(entity.sub(lambda found: html.unescape(found[0]), canonical_text.blank_calculator_tags(text)))
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", re.sub("['‘’ʼ]", "", text))
    return re.sub(r"[\W_]+", " ", text, flags=re.UNICODE).split()


COMMAS = st.lists(
    st.sampled_from(["1", "23", "456", "7890", ",", ",,", " ", "é", "n't", "’s", "’", "İ", "ŉ", "ſ", "́"]), max_size=12
)


@given(st.lists(st.one_of(TEXT, COMMAS.map("".join)), max_size=5))
def test_a_batch_has_the_words_of_each_text(texts):
    buffer, starts = canonical_batch(texts)
    data = buffer.tobytes()
    batched = [data[low:high].decode().split() for low, high in pairwise(starts.tolist())]
    assert batched == [words(text) for text in texts]
    assert len(starts) == len(texts) + 1 and starts[-1] == len(data)


@given(st.one_of(TEXT, COMMAS.map("".join)))
def test_words_are_those_of_the_definition(text):
    assert words(text) == slow_words(text)
