"""Dolma's paragraph decontamination (`allenai/dolma`) as a policy."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import xxhash

from datakit.contamination.grams import Cut, GramPolicy, NamedIndex, check_canaries, check_count, index_records
from datakit.text.byte_spans import Span

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class DolmaPolicy(GramPolicy):
    """One line of the document is, character for character, a line of a benchmark record with at least 13 words.

    OLMo's decontamination with Dolma's Bloom filter in paragraph mode (`allenai/dolma`, its decontamination run book:
    paragraphs of at least 13 Unicode words, split at newlines, an exact match drops the document). An exact index stands for
    the Bloom filter of 1e-15. Which lines it can find depends on how prompts are rendered, so no recall is demanded of its
    canaries, only recorded.
    """

    policy: str = "dolma-paragraph"
    kind: Literal["dolma"] = "dolma"
    min_words: int = 13
    num_canaries: int = 24
    min_canary_recall: float = 0.0

    def __post_init__(self) -> None:
        check_count("min_words", self.min_words)
        check_canaries(self.num_canaries, self.min_canary_recall)

    def cut(self, texts: Sequence[str]) -> Cut:
        """A word is a whole line."""
        lines = [[xxhash.xxh3_64_intdigest(line) for line in text.split("\n")] for text in texts]
        bounds = np.cumsum([0, *map(len, lines)], dtype=np.int64)
        return Cut(np.array([line for of_text in lines for line in of_text], np.uint64), bounds, np.arange(len(texts)))

    def spans(self, text: str) -> Iterator[Span]:
        return line_spans(text)

    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Lines of the records with enough words."""
        del items
        texts = channels["text"].to_list()
        enough = [num_unicode_words(line) >= self.min_words for text in texts for line in text.split("\n")]
        grams = tuple(index_records(self, self.cut(texts), [[1]] * len(texts), np.array(enough, np.bool_)))
        return NamedIndex(grams, np.zeros(len(channels), np.int64))


def line_spans(text: str) -> Iterator[Span]:
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line)
        start += len(line) + 1


def num_unicode_words(line: str) -> int:
    return len(_WORD.findall(line))
