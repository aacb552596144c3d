"""Canonical text for matching: what is left of a text when its formatting is taken away.

Both sides of a comparison, benchmark items and documents, pass here, so that a leaked item is found whatever its case,
punctuation, line breaks or calculator tags (marin's 13-grams on raw tokens find 57 % of OLMES-rendered GSM8K items and none
in lower case; research/data_peers_measured.md, section 7).

The definition: calculator tags `<<1+1=2>>` become a space; NFKC; casefold; apostrophes and thousands commas vanish; every other
character that is no letter or digit becomes a space. Words are what the spaces separate.

None of these steps looks across white space but the first, which is why a text may be canonicalised token by token
(`word_spans`) and give the same words as in one piece (`canonical_bytes`).
"""

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

CANONICAL_TEXT_VERSION = "canonical-text/1"

_CALCULATOR_TAG = re.compile(r"<<[0-9+\-*/().,%$ ]{0,100}=[0-9+\-*/().,%$= ]{0,100}>>")
"""All 4,282 tags of GSM8K's test split are of this form; shifts and streams of program code are not."""
_APOSTROPHES = re.compile("[‘’ʼ]")
_NON_ASCII = re.compile("[^\x00-\x7f]+")
_NON_WORD = re.compile(r"\W+")
_THOUSANDS_COMMA = re.compile(rb",(?<=[0-9],)(?=[0-9]{3}(?![0-9]))")
_TOKEN = re.compile(r"\S+")
_SPACE = ord(" ")


def _ascii_table() -> bytes:
    """Byte translation: letters lowered, digits and bytes of multi-byte characters kept, all else a space."""
    table = bytearray([_SPACE]) * 128 + bytearray(range(128, 256))
    for byte in b"0123456789abcdefghijklmnopqrstuvwxyz":
        table[byte] = byte
    for byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[byte] = byte + 32
    return bytes(table)


_ASCII_TABLE = _ascii_table()


def canonical_bytes(text: str) -> bytes:
    """Canonical words as UTF-8, separated (and perhaps surrounded) by spaces.

    >>> canonical_bytes("Janet’s total = $<<1*1200=1200>>1,200!").split()
    [b'janets', b'total', b'1200']
    """
    if "<<" in text:
        text = blank_calculator_tags(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
        text = _NON_ASCII.sub(_words_of_run, text)
    data = text.encode()
    if b"," in data:
        data = _THOUSANDS_COMMA.sub(b"", data)
    return data.translate(_ASCII_TABLE, b"'")


def _words_of_run(run: re.Match[str]) -> str:
    """A run of characters beyond ASCII without what is no word. Looking at these alone takes 0.66 s for 40 MB, a pass of such
    a pattern over the whole of each text 0.89 s (2026-11-21)."""
    return _NON_WORD.sub(" ", _APOSTROPHES.sub("", run[0]))


def blank_calculator_tags(text: str) -> str:
    """Calculator tags replaced by as many spaces, so that offsets stay."""
    return _CALCULATOR_TAG.sub(lambda tag: " " * len(tag[0]), text)


def word_spans(text: str) -> NDArray[np.int64]:
    """Where each canonical word lies in the original text: int64 [words, 2], character start and end.

    As coarse as the white-space token that holds the word: "(well-known)," gives its whole span to "well" and to "known".
    Costs about 1 s per 4 MB, so it is for documents with a match only.
    """
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(blank_calculator_tags(text)):
        is_one_word = token[0].isascii() and token[0].isalnum()
        spans += [token.span()] * (1 if is_one_word else len(canonical_bytes(token[0]).split()))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
