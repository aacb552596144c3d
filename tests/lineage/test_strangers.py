"""JSON that strangers wrote: an object of whole Unicode texts, or an error that names it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.strangers import json_object

TEXTS = st.text(st.characters() | st.sampled_from("\ud800\udbff\udc00\udfff\U0001f600\\u"), max_size=8)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=2), max_size=3), st.booleans())
def test_a_text_is_whole_unicode_however_it_is_written(record: dict, is_ascii: bool) -> None:
    text = json.dumps(record, ensure_ascii=is_ascii)
    read = json.loads(text)  # two halves that are written as two escapes are read as one character
    try:
        json.dumps(read, ensure_ascii=False).encode()
        text.encode()
    except UnicodeError:
        with pytest.raises(ValueError, match=r"^x\.json cannot be read"):
            json_object(text, "x.json")
    else:
        assert json_object(text, "x.json") == read


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": 1', "nul"])
def test_what_is_no_object_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^x\.json (is not JSON|holds)"):
        json_object(text, "x.json")
