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
from itertools import pairwise

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
_WHITE_SPACE = re.compile(r"\s")
_PIECE_CHARACTERS = 4_096
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
    return _without_formatting(blank_calculator_tags(text) if "<<" in text else text)


def _without_formatting(text: str) -> bytes:
    """`canonical_bytes` of a text whose calculator tags are blanked; blanking twice could find a tag that was none."""
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


class WordPlaces:
    """Where the canonical words of a text lie in it, found a piece of the text at a time, as they are asked for.

    A match asks for two words of a long document: canonicalising pieces and counting their words is 20 times as fast as finding
    the span of every word (2026-11-21).
    """

    def __init__(self, text: str) -> None:
        self._text = blank_calculator_tags(text)
        edges = [0]
        while edges[-1] < len(self._text):
            cut = _WHITE_SPACE.search(self._text, edges[-1] + _PIECE_CHARACTERS)
            edges.append(cut.start() if cut else len(self._text))
        counts = [len(_without_formatting(self._text[low:high]).split()) for low, high in pairwise(edges)]
        self._edges = edges
        self._first_words = np.cumsum([0, *counts])
        self._spans: dict[int, NDArray[np.int64]] = {}

    def span(self, word: int) -> tuple[int, int]:
        """Characters from the start to the end of a word's white-space token. Raises: IndexError beyond the last word."""
        piece = int(np.searchsorted(self._first_words, word, side="right")) - 1
        if not 0 <= word < self._first_words[-1]:
            raise IndexError(f"word {word} of a text of {self._first_words[-1]} words")
        if piece not in self._spans:
            low, high = self._edges[piece : piece + 2]
            self._spans[piece] = _token_spans(self._text[low:high]) + low
        start, end = self._spans[piece][word - self._first_words[piece]].tolist()
        return start, end


def word_spans(text: str) -> NDArray[np.int64]:
    """Where each canonical word lies in the original text: int64 [words, 2], character start and end.

    As coarse as the white-space token that holds the word: "(well-known)," gives its whole span to "well" and to "known".
    Costs about 1 s per 4 MB, so it is for documents with a match only.
    """
    return _token_spans(blank_calculator_tags(text))


def _token_spans(text: str) -> NDArray[np.int64]:
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        is_one_word = token[0].isascii() and token[0].isalnum()
        spans += [token.span()] * (1 if is_one_word else len(_without_formatting(token[0]).split()))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
