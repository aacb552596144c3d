"""The sampled check of whitespace finds every long run that the plain pattern finds."""

import re

from hypothesis import given
from hypothesis import strategies as st

from datakit.documents.whitespace import WhitespaceCap

RUNS = st.builds(str.__mul__, st.sampled_from([" ", "\n", "\t", "\u3000", " \n"]), st.integers(1, 300))
TEXTS = st.lists(st.one_of(RUNS, st.text(max_size=40)), max_size=12).map("".join)


@given(TEXTS, st.sampled_from([1, 2, 7, 12, 13, 40, 128, 200]))
def test_runs_are_cut_as_by_the_pattern_alone(text: str, cap: int) -> None:
    expected = re.subn(rf"\s{{{cap + 1},}}", lambda match: match.group()[:cap], text)
    assert WhitespaceCap(cap).apply(text) == expected
