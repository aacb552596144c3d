"""Texts as code points: equal to Python's, for any slice of a column; positions of line feeds."""

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from datakit.text.code_points import NO_ASCII, RUN_CHARS, code_points, having, lowered, runs_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\na é字🙂"), max_size=20)


@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(0, 4))
@example(["", "\n", "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff"], 0)
def test_they_are_the_characters_of_the_texts_with_a_line_feed_behind_each(texts, first):
    column = pl.Series(["of a slice before", *texts])[1:][min(first, len(texts) - 1) :]
    characters, wanted = code_points(column), column.to_list()
    joined = "".join(f"{text}\n" for text in wanted)
    assert characters.points.tolist() == [ord(character) for character in joined]
    assert characters.num_chars.tolist() == [len(text) for text in wanted]
    assert characters.num_line_feeds.tolist() == [text.count("\n") for text in wanted]
    assert characters.line_feeds.tolist() == [place for place, character in enumerate(joined) if character == "\n"]
    ends = characters.line_feeds[characters.line_feed_bounds[1:] - 1]
    assert ends.tolist() == (characters.bounds[1:] - 1).tolist()


def test_runs_are_all_texts_in_order_and_one_of_nothing():
    texts = ["a" * (RUN_CHARS - 1), "b", "c" * (2 * RUN_CHARS), "", "d"]
    runs = [run.num_chars.tolist() for run in runs_of(pl.Series(texts))]
    assert [chars for run in runs for chars in run] == [len(text) for text in texts] and len(runs) > 2
    (nothing,) = runs_of(pl.Series([], dtype=pl.String))
    assert nothing.points.size == nothing.num_chars.size == 0


def test_letters_in_lower_case_are_python_s_where_they_are_one_of_ascii():
    table = lowered()
    for point in [*range(0x250), 0x212A, 0x212B, 0xFF21]:
        lower = chr(point).lower()
        assert table[point] == (ord(lower) if len(lower) == 1 and lower.isascii() else NO_ASCII)
    assert np.flatnonzero(having(r"\d"))[:11].tolist() == [*range(0x30, 0x3A), 0x660]
