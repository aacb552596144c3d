"""Words between white space, for policies that keep case and punctuation."""

import re
from collections.abc import Iterator

from datakit.text.byte_spans import Span

_TOKEN = re.compile(r"\S+")


def has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def token_spans(text: str) -> Iterator[Span]:
    return (token.span() for token in _TOKEN.finditer(text))
