"""Canonical text for matching: a text without its formatting.

Benchmark items and documents both pass through it, so a leaked item is found in any case, punctuation, line breaks or
calculator tags. Marin's 13-grams on raw tokens find 57 % of OLMES-rendered GSM8K items and none of them in lower case
(docs/references.md).

The definition: calculator tags `<<1+1=2>>` become a space, also with their brackets as HTML entities; HTML entities that
end in a semicolon, named and numeric, become their characters, once; then the text is folded (`datakit.text.folding`);
apostrophes and thousands commas are removed; every other character that is not a letter or a digit becomes a space.
Words are separated by spaces.

Only the first step looks across white space. So a text may be canonicalised token by token (`word_spans`) and gives the
same words as in one piece (`canonical_bytes`).
"""

import html
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from datakit.text.compiled import compiled
from datakit.text.folding import END_OF_TEXT, fold, fold_batch
from datakit.text.formatting import APOSTROPHES, ASCII_TABLE, without_formatting

CANONICAL_TEXT_VERSION = "canonical-text/3"

_CALCULATOR_TAG = re.compile(r"(?:<<|&lt;&lt;)[0-9+\-*/().,%$ ]{0,100}=[0-9+\-*/().,%$= ]{0,100}(?:>>|&gt;&gt;)")
"""All 4,282 tags of GSM8K's test split have this form. Shifts and streams in program code do not."""
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
"""HTML's rule without the old names that need no semicolon: `a=1&copy=2` in an address is no copyright sign."""
_APOSTROPHES = re.compile(f"[{APOSTROPHES}]")
_WIDE_NON_WORD = re.compile(r"[^\w\x00-\x7f]+")
_THOUSANDS_COMMA = re.compile(rb",(?<=[0-9],)(?=[0-9]{3}(?![0-9]))")
_TOKEN = re.compile(r"\S+")
_WHITE_SPACE = re.compile(r"\s")
_PIECE_CHARACTERS = 512
_SPACE, _LESS = b" <"

type Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Canonical texts in one buffer, and the start of each."""


def canonical_bytes(text: str) -> bytes:
    """Return canonical words as UTF-8, separated (and perhaps surrounded) by spaces.

    >>> canonical_bytes("Janet’s total = $<<1*1200=1200>>1,200!").split()
    [b'janets', b'total', b'1200']
    """
    return _without_formatting(blank_calculator_tags(text))


def _without_formatting(text: str) -> bytes:
    """Return `canonical_bytes` of a text whose calculator tags are already blank. Blanking twice could match text that
    was no tag.
    """
    text = unescape(text)
    data = (text if text.isascii() else _folded(text)).encode()
    if b"," in data:
        data = _THOUSANDS_COMMA.sub(b"", data)
    return data.translate(ASCII_TABLE, b"'")


def canonical_batch(texts: Sequence[str]) -> Batch:
    """Return `canonical_bytes` of many texts as one buffer, and int64 [texts + 1] the start of each text.

    One separator byte follows every text. Byte operations run once over all texts, because for a short document a call
    costs more than its work.
    """
    encoded = [text.encode() for text in texts]
    for number in _with_markup(texts, encoded):
        encoded[number] = unescape(blank_calculator_tags(texts[number])).encode()
    return _batch_without_formatting(encoded)


def _with_markup(texts: Sequence[str], encoded: Sequence[bytes]) -> list[int]:
    """Return which texts may hold calculator tags or HTML entities. Numpy finds `<<` ten times as fast as Python does."""
    data = np.frombuffer(_joined(encoded), np.uint8)
    is_less = data == _LESS
    places = np.flatnonzero(is_less[:-1] & is_less[1:])
    held = set(np.searchsorted(np.flatnonzero(data == END_OF_TEXT), places).tolist()) if places.size else set()
    return [number for number, text in enumerate(texts) if "&" in text or number in held]


def _joined(encoded: Sequence[bytes]) -> bytes:
    return b"\xff".join([*encoded, b""])


def _batch_without_formatting(encoded: Sequence[bytes]) -> Batch:
    """Return `canonical_batch` of texts without calculator tags and entities, given as UTF-8."""
    data = np.frombuffer(_joined(encoded), np.uint8)
    return without_formatting(data if all(map(bytes.isascii, encoded)) else fold_batch(data), len(encoded))


def _folded(text: str) -> str:
    """Fold characters beyond ASCII to those of canonical words or to spaces; lower-case ASCII letters and keep other
    ASCII.
    """
    return _WIDE_NON_WORD.sub(" ", _APOSTROPHES.sub("", fold(text)))


def blank_calculator_tags(text: str) -> str:
    """Replace calculator tags by as many spaces, so that offsets stay."""
    # One character is searched for ten times as fast as two.
    if not ("<" in text and "<<" in text) and not ("&" in text and "&lt;&lt;" in text):
        return text
    return _CALCULATOR_TAG.sub(lambda tag: " " * len(tag[0]), text)


def unescape(text: str) -> str:
    """Replace HTML entities by their characters. An entity has no white space, so none crosses two tokens.

    >>> unescape("Tom&#39;s &quot;caf&eacute;&quot; &amp;lt; R&D; a=1&copy=2")
    'Tom\'s "café" &lt; R&D; a=1&copy=2'
    """
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text) if "&" in text else text


def token_spans(text: str, words: Sequence[int]) -> list[tuple[int, int]]:
    """Return for some words of a text, given by number, the characters of the white-space token around each.

    Raises: IndexError beyond the last word.
    """
    blanked = blank_calculator_tags(text)
    if not text.isascii() or ("&" in text and _ENTITY.search(blanked)):
        places = WordPlaces(text)
        return [places.span(word) for word in words]
    wanted = np.unique(np.array(words, np.int64))
    spans, count = _ascii_token_spans(np.frombuffer(blanked.encode(), np.uint8), wanted)
    if len(spans) < len(wanted):
        raise IndexError(f"word {wanted[len(spans)]} of a text of {count} words")
    return [tuple(span) for span in spans[np.searchsorted(wanted, words)].tolist()]


@compiled
def _ascii_token_spans(data: NDArray[np.uint8], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return int64 [found, 2], the spans of words of an ASCII text without entities, and the words up to the last of them.

    Words are runs of letters and digits; apostrophes and thousands commas (`_THOUSANDS_COMMA`) neither end nor begin one.
    """
    spans, filled, count, token, in_word = np.empty((wanted.size, 2), np.int64), 0, 0, 0, False
    for place in range(data.size):
        if filled == wanted.size:
            break
        byte = data[place]
        if 48 <= byte <= 57 or 97 <= byte | 32 <= 122:
            if not in_word and count == wanted[filled]:
                end = place
                while end < data.size and not (data[end] == 32 or 9 <= data[end] <= 13 or 28 <= data[end] <= 31):
                    end += 1
                spans[filled, 0], spans[filled, 1] = token, end
                filled += 1
            count += not in_word
            in_word = True
        elif byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31:
            token, in_word = place + 1, False
        elif byte == 44:
            joins = place > 0 and place + 3 < data.size and 48 <= data[place - 1] <= 57
            for digit in data[place + 1 : place + 4]:
                joins &= 48 <= digit <= 57
            joins &= not (place + 4 < data.size and 48 <= data[place + 4] <= 57)
            in_word &= joins
        elif byte != 39:
            in_word = False
    return spans[:filled].copy(), count


class WordPlaces:
    """Find where canonical words lie in a text, one piece of the text at a time, as they are asked for.

    A match needs two words of a long document. Canonicalising pieces and counting their words is 20 times as fast as
    finding the span of every word (2026-11-21).
    """

    def __init__(self, text: str) -> None:
        self._text = blank_calculator_tags(text)
        edges = [0]
        while edges[-1] < len(self._text):
            cut = _WHITE_SPACE.search(self._text, edges[-1] + _PIECE_CHARACTERS)
            edges.append(cut.start() if cut else len(self._text))
        buffer, starts = _batch_without_formatting([unescape(self._text[low:high]).encode() for low, high in pairwise(edges)])
        is_word = buffer != _SPACE
        words = np.flatnonzero(is_word & ~np.concatenate(([False], is_word[:-1])))
        self._edges = edges
        self._first_words = np.searchsorted(words, starts)
        self._spans: dict[int, NDArray[np.int64]] = {}

    def span(self, word: int) -> tuple[int, int]:
        """Return the characters from the start of one word's white-space token to the end of another's. Raises:
        IndexError beyond the last word.
        """
        piece = int(np.searchsorted(self._first_words, word, side="right")) - 1
        if not 0 <= word < self._first_words[-1]:
            raise IndexError(f"word {word} of a text of {self._first_words[-1]} words")
        if piece not in self._spans:
            low, high = self._edges[piece : piece + 2]
            self._spans[piece] = _token_spans(self._text[low:high]) + low
        start, end = self._spans[piece][word - self._first_words[piece]].tolist()
        return start, end


def word_spans(text: str) -> NDArray[np.int64]:
    """Return where each canonical word lies in the original text: int64 [words, 2], character start and end.

    The span is that of the white-space token around the word: "well" and "known" both get the span of "(well-known),".
    It takes about 1 s per 4 MB, so use it only for documents with a match.
    """
    return _token_spans(blank_calculator_tags(text))


def _token_spans(text: str) -> NDArray[np.int64]:
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        is_one_word = token[0].isascii() and token[0].isalnum()
        spans += [token.span()] * (1 if is_one_word else len(_without_formatting(token[0]).split()))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
