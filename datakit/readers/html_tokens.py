"""The tags and texts of a page of HTML, in one pass: whatever the page, its cost is linear in its length.

Python's `html.parser` is no base for documents. Where a tag or comment does not end it reads to the end of the page from every
`<` again (45 s for 180 KB of open quotes), `<![<` ends it with an AssertionError, and what it takes for a comment or a script
differs between patch versions of Python, so would the ids of documents.
"""

import re
from collections.abc import Iterator
from html import unescape
from types import MappingProxyType
from typing import Literal, NamedTuple

_NAME = r"[a-zA-Z][^\t\n\r\f />]*+"
_VALUE = r"""(?:'[^']*+'|"[^"]*+"|(?!['"])[^\s>]*+)"""
TAG = re.compile(rf"<(/?)({_NAME})(?:[^\s/>][^\s/>=]*+(?:\s*+=\s*+{_VALUE})?+|\s++|(/)(?=>)|/)*+>")
"""A tag and its attributes (HTML standard, 13.2.5.6 to 13.2.5.40); a quote that never ends begins no value. All of it is
possessive, so nothing is read in two ways."""

TAG_WITHOUT_QUOTES = re.compile(rf"<(/?)({_NAME})[^>]*?(/?)>")
TAG_BEGINS = re.compile("</?[a-zA-Z]")
DECLARATION_BEGINS = re.compile("<[!?/]")
EMPTY_COMMENT = re.compile("<!---?>")
COMMENT_END = re.compile("--!?>")
RAW_END = MappingProxyType({name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")})
"""Elements in which nothing but their own end tag is markup, and nothing is text."""

ENDLESS_NUMBER = re.compile(r"&#[0-9]{20,}+;?")
"""No character, or zeros in front of one: Python refuses to read 4,301 digits."""


class Token(NamedTuple):
    """A tag by its name in small letters, or a piece of text with characters in the place of `&amp;` and the like."""

    kind: Literal["start", "end", "empty", "text"]
    """`empty` is a start and its end: `<br/>`."""

    value: str


def tokens(page: str) -> Iterator[Token]:
    """Tags and texts in their order, without comments, declarations and what scripts and styles hold.

    What is never closed loses no text, where browsers drop the rest of the page: a `<` behind the last `>` is text, a comment
    without its end is none, and a tag that runs to the end of the page because its quotes do not fit ends at the next `>`.
    From such a tag on quotes mean nothing: each further one could cost the rest of the page again.
    """
    pattern, last_mark = TAG, page.rfind(">")
    last_comment_end = max(page.rfind("-->"), page.rfind("--!>"))
    at = text = 0
    while 0 <= (at := page.find("<", at)) < last_mark:
        found = None
        if TAG_BEGINS.match(page, at):
            found = pattern.match(page, at)
            if found is None:
                pattern = TAG_WITHOUT_QUOTES
                continue
            end = found.end()
        elif DECLARATION_BEGINS.match(page, at):
            end = _declaration_end(page, at, last_comment_end)
        else:
            at += 1  # a character of the text
            continue
        if text < at:
            yield Token("text", _characters(page[text:at]))
        at = text = end
        if found is not None:
            yield (token := _tag(found))
            if token.kind == "start" and token.value in RAW_END:
                closed = RAW_END[token.value].search(page, at)
                at = text = closed.start() if closed else len(page)
    if text < len(page):
        yield Token("text", _characters(page[text:]))


def _tag(found: re.Match[str]) -> Token:
    end, name, empty = found.groups()
    return Token("end" if end else "empty" if empty else "start", name.lower())


def _declaration_end(page: str, at: int, last_comment_end: int) -> int:
    """Where a comment, a declaration or an instruction ends. There is a `>` behind `at`."""
    if page.startswith("<!--", at):
        if empty := EMPTY_COMMENT.match(page, at):
            return empty.end()
        closed = COMMENT_END.search(page, at + 4) if last_comment_end >= at + 4 else None
        return closed.end() if closed else at + 4
    return page.index(">", at) + 1


def _characters(text: str) -> str:
    return unescape(ENDLESS_NUMBER.sub("\ufffd", text)) if "&" in text else text
