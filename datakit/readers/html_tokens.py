"""The tags and texts of an HTML page in one pass. The cost is linear in the page's length for every page.

Python's `html.parser` is unsuitable for documents. If a tag or comment does not end, it reads to the end of the page
again from every `<` (45 s for 180 KB of open quotes). `<![<` ends it with an AssertionError. What it takes for a
comment or a script differs between patch versions of Python, so document ids would differ too.
"""

import re
from collections.abc import Iterator
from html import unescape
from types import MappingProxyType
from typing import Literal, NamedTuple

_NAME = r"[a-zA-Z][^\t\n\r\f />]*+"
_VALUE = r"""(?:'[^']*+'|"[^"]*+"|(?!['"])[^\s>]*+)"""
TAG = re.compile(rf"<(/?)({_NAME})(?:[^\s/>][^\s/>=]*+(?:\s*+=\s*+{_VALUE})?+|\s++|(/)(?=>)|/)*+>")
"""A tag and its attributes (HTML standard, 13.2.5.6 to 13.2.5.40); a quote that never ends begins no value. All
quantifiers are possessive, so there is no backtracking.
"""

TAG_WITHOUT_QUOTES = re.compile(rf"<(/?)({_NAME})[^>]*?(/?)>")
TAG_BEGINS = re.compile("</?[a-zA-Z]")
DECLARATION_BEGINS = re.compile("<[!?/]")
EMPTY_COMMENT = re.compile("<!---?>")
COMMENT_END = re.compile("--!?>")
RAW_END = MappingProxyType({name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")})
"""Elements in which only their own end tag is markup, and nothing is text."""

ENDLESS_NUMBER = re.compile(r"&#[0-9]{20,}+;?")
"""A character reference that is no character, or has leading zeros: Python refuses to read 4,301 digits."""


class Token(NamedTuple):
    """A tag by its lower-case name, or a piece of text with `&amp;` and the like replaced by characters."""

    kind: Literal["start", "end", "empty", "text"]
    """`empty` means a start and its end: `<br/>`."""

    value: str


def tokens(page: str) -> Iterator[Token]:
    """Yield tags and texts in order, without comments, declarations and the content of scripts and styles.

    Unclosed markup loses no text, where browsers drop the rest of the page: a `<` after the last `>` is text, a comment
    without an end is no comment, and a tag whose quotes do not match ends at the next `>`. After such a tag quotes are
    ignored, because each further one could cost a pass over the rest of the page.
    """
    pattern, last_mark = TAG, page.rfind(">")
    last_comment_end = max(page.rfind("-->"), page.rfind("--!>"))
    at = text = 0
    while 0 <= (at := page.find("<", at)) < last_mark:
        match = None
        if TAG_BEGINS.match(page, at):
            match = pattern.match(page, at)
            if match is None:
                pattern = TAG_WITHOUT_QUOTES
                continue
            end = match.end()
        elif DECLARATION_BEGINS.match(page, at):
            end = _declaration_end(page, at, last_comment_end)
        else:
            at += 1  # It is a character of the text.
            continue
        if text < at:
            yield Token("text", _characters(page[text:at]))
        at = text = end
        if match is not None:
            yield (token := _tag(match))
            if token.kind == "start" and token.value in RAW_END:
                closed = RAW_END[token.value].search(page, at)
                at = text = closed.start() if closed else len(page)
    if text < len(page):
        yield Token("text", _characters(page[text:]))


def _tag(match: re.Match[str]) -> Token:
    end, name, empty = match.groups()
    return Token("end" if end else "empty" if empty else "start", name.lower())


def _declaration_end(page: str, at: int, last_comment_end: int) -> int:
    """Return where a comment, a declaration or an instruction ends. There is a `>` after `at`."""
    if page.startswith("<!--", at):
        if empty := EMPTY_COMMENT.match(page, at):
            return empty.end()
        closed = COMMENT_END.search(page, at + 4) if last_comment_end >= at + 4 else None
        return closed.end() if closed else at + 4
    return page.index(">", at) + 1


def _characters(text: str) -> str:
    return unescape(ENDLESS_NUMBER.sub("\ufffd", text)) if "&" in text else text
