"""HTML tokens: linear time, no exceptions, and no text lost in unclosed elements."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.readers import html_tokens
from datakit.readers.html_text import html_to_text
from datakit.readers.html_tokens import Token, tokens

COUNTED = ("TAG", "TAG_WITHOUT_QUOTES", "COMMENT_END")
"""The patterns that may read far: all others end within a name, or where the next token begins."""

PIECES = ("<a ", "</a ", '<a x="', "<a x='", '<a b="c" ', "<a x=", "<!--", "<!-- --", "<![CDATA[", "<![", "<?", "<script", "</")
ENDINGS = ("", ">", '">', "'>", " -->", " --", "</script>")


@dataclass
class Counting:
    """A pattern that counts the characters it was given to read: to the end of what it found, or of the page."""

    pattern: re.Pattern[str]
    read: list[int]

    def match(self, page: str, at: int) -> re.Match[str] | None:
        return self._counted(self.pattern.match(page, at), page, at)

    def search(self, page: str, at: int) -> re.Match[str] | None:
        return self._counted(self.pattern.search(page, at), page, at)

    def _counted(self, match: re.Match[str] | None, page: str, at: int) -> re.Match[str] | None:
        self.read.append((match.end() if match else len(page)) - at)
        return match


@pytest.mark.parametrize("piece", PIECES)
def test_no_page_is_read_again_and_again(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`html.parser` reads 4,000 tags with open quotes 2,000 times."""
    read = list[int]()
    for name in COUNTED:
        monkeypatch.setattr(html_tokens, name, Counting(getattr(html_tokens, name), read))
    for ending in ENDINGS:
        for odd in (0, 1):
            page, read[:] = piece * (4_000 + odd) + ending, ()
            list(tokens(page))
            assert sum(read) <= 3 * len(page), f"{ending!r}: {sum(read) / len(page):.0f} times"


def test_tags_are_known_by_their_names_and_texts_by_their_characters() -> None:
    page = '<P class=a id="x>y">a &lt; b<br/>c<IMG src=x/>d</P >'
    assert list(tokens(page)) == [
        Token("start", "p"),
        Token("text", "a < b"),
        Token("empty", "br"),
        Token("text", "c"),
        Token("start", "img"),
        Token("text", "d"),
        Token("end", "p"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a <!-- x > y --> b<!-->c<!--->d<!--x--!>e", "a  bcde"),
        ("<!DOCTYPE html><?xml version='1'?>a</>b</3>c<![if IE]>d<![endif]>e", "abcde"),
        ("<![<p>a</p>", "a"),
        ("1 < 2 <3 & 4 &amp &#65; << >", "1 < 2 <3 & 4 & A << >"),
        ("a<script>if (a</b) '<p>x'</SCRIPT >b<style/>c<style>d", "abc"),
        ("&#" + "1" * 5_000 + ";a&#00000000000000000000065;", "\ufffda\ufffd"),
    ],
    ids=["comments", "declarations", "an open section", "signs", "scripts", "numbers"],
)
def test_what_is_no_tag(page: str, text: str) -> None:
    assert "".join(token.value for token in tokens(page) if token.kind == "text") == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('<p>one <a href="x>two</a> three</p><p>four', "one two three\n\nfour"),
        ("<p>one <a href='x'>two</a> <b title='>three</b></p><p>four</p> it's", "one two three\n\nfour\nit's"),
        ("<p>one <!-- two <p>three</p>", "one  two\nthree"),
        ("<p>one</p> two <three", "one\ntwo <three"),
    ],
    ids=["an open quote", "quotes that do not fit", "an open comment", "an open tag"],
)
def test_what_is_never_closed_loses_no_text(page: str, text: str) -> None:
    assert html_to_text(page) == text


MARKUP = st.sampled_from(
    [*PIECES, *ENDINGS, "<p>", "</p>", "<pre>", "<nav>", "</nav>", "<svg/>", "a", " ", "\n", "&", "&#", "="]
)


@given(st.lists(MARKUP | st.text(max_size=3), max_size=30))
def test_no_page_raises_and_every_tag_stands_in_it(pieces: list[str]) -> None:
    page = "".join(pieces)
    html_to_text(page)
    tags = [f"<{'/' * (token.kind == 'end')}{token.value}" for token in tokens(page) if token.kind != "text"]
    at, small = 0, page.lower()
    for tag in tags:
        at = small.index(tag, at) + len(tag)


class _Parsed(HTMLParser):
    """Python's own parser, as the reference on pages that are whole."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tokens.append(("start", tag))

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tokens.append(("empty", tag))

    def handle_endtag(self, tag: str) -> None:
        self.tokens.append(("end", tag))

    def handle_data(self, data: str) -> None:
        self.tokens.append(("text", data))


NAME = st.sampled_from(["p", "b", "h1", "pre", "my-box"])
VALUE = st.text("ab<>&;='/ -", max_size=6).map(lambda value: f'"{value}"') | st.text("abc'", min_size=1, max_size=4).filter(
    lambda value: value[0] != "'"
)
ATTRIBUTE = st.tuples(st.sampled_from([" a", "\tb-c", " x:y"]), VALUE | st.none()).map(
    lambda pair: pair[0] if pair[1] is None else "=".join((pair[0], pair[1]))
)
START = st.tuples(NAME, st.lists(ATTRIBUTE, max_size=3), st.sampled_from([">", " >", " />"])).map(
    lambda parts: f"<{parts[0]}{''.join(parts[1])}{parts[2]}"
)
WHOLE = st.lists(START | NAME.map("</{}>".format) | st.text("ab \n.", min_size=1).map(" {}".format) | st.just("<!-- c -->"))


@given(WHOLE)
def test_pages_that_are_whole_have_the_tokens_that_python_finds(pieces: list[str]) -> None:
    reference = _Parsed()
    reference.feed("".join(pieces))
    reference.close()
    assert [tuple(token) for token in tokens("".join(pieces))] == reference.tokens
