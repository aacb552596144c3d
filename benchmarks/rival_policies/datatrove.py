"""datatrove's decontamination (`huggingface/datatrove`, `n_grams.py`) as a policy."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from datakit.contamination.grams import Cut, GramPolicy, NamedIndex, Phrase, check_canaries, check_count, index_phrases
from datakit.contamination.leak_forms import Item
from datakit.text.byte_spans import Span
from datakit.text.ngram_index import hash_words

_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"\d+([.,،٫⎖⎗⎘]\d+)?")
_NO_WORD = re.compile(r"[^\w\s]|_")


@dataclass(frozen=True)
class DatatrovePolicy(GramPolicy):
    """One 12-gram of an answer, or across the seam of question and answer, is in the document.

    datatrove 0.10.1, `pipeline/decont/n_grams.py` with its defaults (query-only grams off) and `utils/text.py:
    simplify_text`: lower case, every number `0`, punctuation a space, diacritics dropped. Its words are spaCy's; here spaces
    separate them, which after `simplify_text` differs on a few words ("dont", "cannot" are two each there). The verdicts on
    1,500 documents were those of the package (benchmarks/notes/2026-11-21-planted-leaks.md). It looks at
    answers, and most are shorter than a gram: no recall is demanded of its canaries, only recorded.
    """

    channel: ClassVar[str] = "answer"
    policy: str = "datatrove-12gram"
    kind: Literal["datatrove"] = "datatrove"
    gram_words: int = 12
    num_canaries: int = 24
    min_canary_recall: float = 0.0

    def __post_init__(self) -> None:
        check_count("gram_words", self.gram_words)
        check_canaries(self.num_canaries, self.min_canary_recall)

    def cut(self, texts: Sequence[str]) -> Cut:
        words = hash_words([datatrove_bytes(text) for text in texts])
        return Cut(words.hashes, words.bounds, np.arange(len(texts)))

    def spans(self, text: str) -> Iterator[Span]:
        return datatrove_spans(text)

    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Grams of the answers, and grams across question and answer."""
        grams = [gram for c, item in enumerate(items.iter_rows(named=True)) for gram in self._grams(c, item)]
        return NamedIndex(index_phrases(grams), np.zeros(len(channels), np.int64))

    def _grams(self, channel: int, item: Item) -> Iterator[Phrase]:
        n = self.gram_words
        query = datatrove_bytes(f"Question: {item['question']}\nAnswer:").split()
        label = datatrove_bytes(item["solution"] or item["answer"]).split()
        for at in range(len(label) - n + 1):
            yield channel, at, b" ".join(label[at : at + n])
        for taken in range(1, n):
            if len(query) >= n - taken and len(label) >= taken:
                yield channel, taken - n, b" ".join(query[taken - n :] + label[:taken])


def datatrove_bytes(text: str) -> bytes:
    """`simplify_text`: numbers are 0, punctuation a space, no diacritics.

    >>> datatrove_bytes("Élodie's 1,200 ducks").split()
    [b'elodie', b's', b'0', b'ducks']
    """
    simple = _NO_WORD.sub(" ", _NUMBER.sub("0", text.lower()))
    if not simple.isascii():
        simple = "".join(c for c in unicodedata.normalize("NFD", simple) if unicodedata.category(c) != "Mn")
    return " ".join(simple.split()).encode()


def datatrove_spans(text: str) -> Iterator[Span]:
    for token in _TOKEN.finditer(text):
        for _ in datatrove_bytes(token[0]).split():
            yield token.span()
