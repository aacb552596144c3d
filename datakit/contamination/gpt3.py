"""GPT-3's contamination filter (Brown et al. 2020, arXiv:2005.14165, appendix C) as a policy."""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from datakit.contamination.grams import Cut, GramPolicy, NamedIndex, check_canaries, check_count, index_records
from datakit.contamination.protocol import CommonGrams
from datakit.text.byte_spans import Span
from datakit.text.ngram_index import hash_words

_TOKEN = re.compile(r"\S+")
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_PUNCTUATION = string.punctuation.encode()
_ASCII_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_LOWER = bytes.maketrans(
    string.ascii_uppercase.encode() + _ASCII_SPACES, string.ascii_lowercase.encode() + b" " * len(_ASCII_SPACES)
)


@dataclass(frozen=True)
class GptPolicy(GramPolicy):
    """A document matches if it holds one n-gram of a benchmark record, unless more than ten documents hold that n-gram.

    GPT-3's paper (arXiv 2005.14165), appendix C: words are lower case, split at white space, without punctuation. Its
    filter of the training set takes 13-grams and ignores those in more than 10 training documents. Its overlap study
    takes, for each benchmark, the 5th percentile of its examples' lengths, at least 8 and at most 13 (`min_gram_words`
    below `gram_words`). Punctuation is the ASCII punctuation that EleutherAI's `janitor` removes. "Training documents"
    are those of the scanned source, because each source is scanned alone. The original cuts 200 characters on either
    side out of the document; here documents are marked.
    """

    policy: str = "gpt3-13gram"
    kind: Literal["gpt3"] = "gpt3"
    gram_words: int = 13
    min_gram_words: int = 13
    length_percentile: int = 5
    max_documents: int = 10
    """A gram in more documents of the source than this is ignored; 0 ignores none."""
    num_canaries: int = 24
    min_canary_recall: float = 0.95

    def __post_init__(self) -> None:
        check_count("min_gram_words", self.min_gram_words)
        if self.gram_words < self.min_gram_words:
            raise ValueError(f"gram_words is {self.gram_words}; it must be at least min_gram_words ({self.min_gram_words})")
        if not 0 <= self.length_percentile <= 100 or self.max_documents < 0:
            raise ValueError(
                f"length_percentile is {self.length_percentile}, it must be in 0..100; max_documents is {self.max_documents}, "
                "it must be at least 0"
            )
        check_canaries(self.num_canaries, self.min_canary_recall)

    @property
    def common_grams(self) -> CommonGrams:
        return "ignored_before_scan" if self.max_documents else "kept"

    def document_limit(self, num_documents: int) -> int:
        del num_documents
        return self.max_documents

    def cut(self, texts: Sequence[str]) -> Cut:
        words = hash_words([gpt_bytes(text) for text in texts])
        return Cut(words.hashes, words.bounds, np.arange(len(texts)))

    def spans(self, text: str) -> Iterator[Span]:
        return gpt_spans(text)

    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Return the grams of the records, of one length for each task."""
        del items
        pieces = self.cut(channels["text"].to_list())
        num_words, tasks = np.diff(pieces.first_words), channels["task"].to_numpy()
        lengths: dict[str, list[int]] = {}
        for task in np.unique(tasks):
            length = np.percentile(num_words[tasks == task], self.length_percentile, method="lower")
            lengths[task] = [int(np.clip(length, self.min_gram_words, self.gram_words))]
        grams = tuple(index_records(self, pieces, [lengths[task] for task in tasks]))
        return NamedIndex(grams, np.zeros(len(channels), np.int64))


def gpt_bytes(text: str) -> bytes:
    """Lower-case, remove ASCII punctuation, and turn all white space into spaces.

    >>> gpt_bytes("Don't panic -- it's 42!").split()
    [b'dont', b'panic', b'its', b'42']
    """
    spaced = text if text.isascii() else _WIDE_SPACE.sub(" ", text)
    return spaced.encode().translate(_LOWER, _PUNCTUATION)


def gpt_spans(text: str) -> Iterator[Span]:
    """Yield the spans of the words that GPT-3's rule compares: runs without white space, except punctuation alone."""
    for token in _TOKEN.finditer(text):
        if token[0].encode().translate(None, _PUNCTUATION):
            yield token.span()
