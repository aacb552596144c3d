"""Marin's decontamination (`marin-community/marin`, `decon.py`) as a policy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from benchmarks.rival_policies.words import has_letter, token_spans
from datakit.contamination.grams import (
    Cut,
    GramPolicy,
    Hits,
    NamedIndex,
    Shared,
    check_canaries,
    check_share,
    index_records,
    shared_grams,
)
from datakit.text.byte_spans import Span
from datakit.text.ngram_index import Ints, UInt64s, grams_at, hash_words


@dataclass(frozen=True)
class MarinPolicy(GramPolicy):
    """At least half of the features of one paragraph are features of a benchmark record.

    `marin-community/marin`, `lib/marin/src/marin/datakit/decon.py`, feature filter 3: paragraphs between blank lines; words
    between white space with their case and punctuation; features are the 13-grams with a letter in them; a paragraph of 3 to 12
    words with a letter is one feature; so is a text of 3 to 12 words none of whose paragraphs has one. Left out: the drop set
    of grams common in a corpus, which is optional there. An exact index stands for the Bloom filter of 1e-9.
    """

    policy: str = "marin-13gram"
    kind: Literal["marin"] = "marin"
    gram_words: int = 13
    min_short_words: int = 3
    overlap_threshold: float = 0.5
    num_canaries: int = 24
    min_canary_recall: float = 0.95

    def __post_init__(self) -> None:
        if not 1 <= self.min_short_words < self.gram_words:
            raise ValueError(f"min_short_words is {self.min_short_words}; it must be in 1..gram_words ({self.gram_words}) - 1")
        check_share("overlap_threshold", self.overlap_threshold)
        check_canaries(self.num_canaries, self.min_canary_recall)

    def cut(self, texts: Sequence[str]) -> Cut:
        """A segment is a paragraph."""
        paragraphs = [self.paragraphs(text) for text in texts]
        words = hash_words([" ".join(part).encode() for parts in paragraphs for part in parts])
        return Cut(words.hashes, words.bounds, np.repeat(np.arange(len(texts)), [len(parts) for parts in paragraphs]))

    def spans(self, text: str) -> Iterator[Span]:
        return token_spans(text)

    def grams_of(self, cut: Cut, n: int) -> tuple[Ints, UInt64s]:
        """Short grams are whole paragraphs."""
        if n == self.gram_words:
            return super().grams_of(cut, n)
        places = cut.bounds[:-1][np.diff(cut.bounds) == n]
        return places, grams_at(cut.words, places, n)

    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Features of the records: those with a letter in them."""
        del items
        texts = channels["text"].to_list()
        letters = [has_letter(word) for text in texts for words in self.paragraphs(text) for word in words]
        lengths = [range(self.min_short_words, self.gram_words + 1)] * len(texts)
        grams = tuple(index_records(self, self.cut(texts), lengths, np.array(letters, np.bool_)))
        return NamedIndex(grams, np.zeros(len(channels), np.int64))

    def flagged(self, texts: Sequence[str], pieces: Cut, hits: Hits, index: NamedIndex) -> Shared:
        """Shared features of paragraphs with enough of them; the paragraph with the largest share comes first."""
        segments, num_hits = np.unique(hits.segments, return_counts=True)
        features = [self._num_features(texts, pieces, int(segment)) for segment in segments]
        shares = num_hits / np.array(features, np.float64)
        flagged = shares >= self.overlap_threshold
        inside = np.flatnonzero(np.isin(hits.segments, segments[flagged]))
        share_of = np.zeros(len(pieces.texts))
        share_of[segments] = shares
        shared = shared_grams(hits.of(inside), pieces, index, share_of)
        return shared.of(np.lexsort((shared.places, -shared.scores, shared.channels, shared.documents)), shared.scores)

    def paragraphs(self, text: str) -> list[list[str]]:
        """Words of every paragraph; one list of all words when no paragraph has a feature and the text is short enough."""
        paragraphs = [part.split() for part in text.split("\n\n")]
        short = text.split(None, self.gram_words - 1)
        is_short = self.min_short_words <= len(short) < self.gram_words
        if is_short and not any(len(words) >= self.min_short_words and has_letter("".join(words)) for words in paragraphs):
            return [short]
        return paragraphs

    def _num_features(self, texts: Sequence[str], pieces: Cut, segment: int) -> int:
        """Features of one paragraph: 1 of a short one, of a longer one its grams with a letter."""
        document = int(pieces.texts[segment])
        first = int(np.searchsorted(pieces.texts, document))
        words = self.paragraphs(texts[document])[segment - first]
        if len(words) < self.gram_words:
            return 1
        letters = np.concatenate(([0], np.cumsum([has_letter(word) for word in words])))
        return int(np.count_nonzero(letters[self.gram_words :] > letters[: -self.gram_words]))
