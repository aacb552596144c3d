"""Tulu 3's decontamination (Lambert et al. 2024, arXiv:2411.15124; `allenai/open-instruct`) as a policy."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from datakit.contamination.grams import (
    Cut,
    GramPolicy,
    Hits,
    NamedIndex,
    Phrase,
    Shared,
    check_canaries,
    check_count,
    check_share,
    index_phrases,
    shared_grams,
)
from datakit.contamination.leak_forms import Item
from datakit.text.byte_spans import Span
from datakit.text.ngram_index import Floats, hash_words

_TOKEN = re.compile(r"\S+")
_TULU_SEPARATORS = b' ,.?!:;()"\n\\-'
_TULU_SPACES = bytes.maketrans(_TULU_SEPARATORS, b" " * len(_TULU_SEPARATORS))
_TULU_WORD = re.compile(r"""[^ ,.?!:;()"\n\\-]+""")
_HEAD = re.compile(r"""\.\.+|[\[\](){}<>"'“”‘’`,;:!?…$£€#&*|~=§%+−×÷–—_]""")
_TAIL = re.compile(
    r"""(?:\.\.+|['’]s|[\[\](){}<>"'“”‘’`,;:!?…*|~§%°–—_$&#+=]|(?<=[a-z0-9)\]"'%°])(?<!\bMr)(?<!Mrs)(?<!\bDr)\.)$"""
)
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:re|ve|ll|d|m))$", re.IGNORECASE)
_INFIX = re.compile(
    r"(?<=[^\W_])(?:--?|–|—)(?=[A-Za-z])|(?<=\d)[+*^-](?=\d)|(?<=[A-Za-z]),(?=[A-Za-z])|(?<=\w)[:<>=/](?=[A-Za-z])|°"
)


@dataclass(frozen=True)
class TuluPolicy(GramPolicy):
    """A document matches if it holds more than half of a prompt's tokens in 8-grams, compared as phrases.

    `allenai/open-instruct`, `decontamination/search.py`: 8-grams of spaCy tokens of the question, `match_phrase` in
    Elasticsearch, share of the question's tokens found in a document, with the threshold 0.5 of the Tulu 3 paper. Our
    own English tokenizer replaces spaCy's (equal spans for 96 % of 9,651 questions). Phrases are compared as
    `tulu_analyzer` of `index.py` cuts them: lower case, few separators. That file defines the analyzer without
    assigning it to the field; the standard analyzer, which drops all punctuation, marks ten times as many documents of
    our corpus (610 of 14,922, most of them formulas). There is no limit of hits for a phrase (the original sees the ten
    best documents). It marks documents, where the original drops a training set once it holds 2 % of an eval.
    """

    channel: ClassVar[str] = "question"
    policy: str = "olmo-tulu-8gram"
    kind: Literal["tulu"] = "tulu"
    gram_tokens: int = 8
    overlap_threshold: float = 0.5
    num_canaries: int = 24
    min_canary_recall: float = 0.9

    def __post_init__(self) -> None:
        check_count("gram_tokens", self.gram_tokens)
        check_share("overlap_threshold", self.overlap_threshold)
        check_canaries(self.num_canaries, self.min_canary_recall)

    def text_of(self, item: Item) -> str:
        return item["question"]

    def cut(self, texts: Sequence[str]) -> Cut:
        words = hash_words([tulu_bytes(text) for text in texts])
        return Cut(words.hashes, words.bounds, np.arange(len(texts)))

    def spans(self, text: str) -> Iterator[Span]:
        return tulu_spans(text)

    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Return the phrases of `gram_tokens` tokens of every question, and the number of its tokens."""
        del items
        tokens = [english_tokens(text) for text in channels["text"]]
        phrases = [phrase for c, text in enumerate(channels["text"]) for phrase in self._phrases(c, text, tokens[c])]
        return NamedIndex(index_phrases(phrases), np.array([len(phrase_tokens) for phrase_tokens in tokens], np.int64))

    def flagged(self, texts: Sequence[str], pieces: Cut, hits: Hits, index: NamedIndex) -> Shared:
        """Return the phrases of questions that a document holds enough of."""
        del texts
        shared = shared_grams(hits, pieces, index, np.zeros(len(pieces.texts)))
        scores = self._token_shares(shared, index)
        return shared.of(np.flatnonzero(scores > self.overlap_threshold), scores)

    def _phrases(self, channel: int, text: str, tokens: list[Span]) -> Iterator[Phrase]:
        n = self.gram_tokens
        for at in range(len(tokens) - n + 1):
            yield channel, at, tulu_bytes(text[tokens[at][0] : tokens[at + n - 1][1]])

    def _token_shares(self, shared: Shared, index: NamedIndex) -> Floats:
        """Return [shared] the share of the channel's tokens that the grams shared with the document cover."""
        pairs = np.stack([shared.documents, shared.channels])
        unique, pair = np.unique(pairs, axis=1, return_inverse=True)
        width = int(index.num_tokens.max(initial=0)) + 1
        tokens = shared.positions[:, None] + np.arange(self.gram_tokens)
        covered = np.unique(pair.reshape(-1, 1) * width + tokens)
        counts = np.bincount(covered // width, minlength=unique.shape[1])
        return (counts / np.maximum(index.num_tokens[unique[1]], 1))[pair.reshape(-1)]


def english_tokens(text: str) -> list[Span]:
    """Return spans of tokens close to those of spaCy's English tokenizer: punctuation cut off the ends of words, few
    cuts inside.
    """
    spans: list[Span] = []
    for chunk in _TOKEN.finditer(text):
        low, high = chunk.span()
        while low < high and (head := _HEAD.match(text, low, high)):
            spans.append(head.span())
            low = head.end()
        tails: list[Span] = []
        while low < high and (tail := _TAIL.search(text, low, high)):
            tails.append(tail.span())
            high = tail.start()
        if (contraction := _CONTRACTION.search(text, low, high)) and contraction.start() > low:
            tails.append(contraction.span())
            high = contraction.start()
        for infix in _INFIX.finditer(text, low, high):
            spans += [(low, infix.start()), infix.span()] if infix.start() > low else [infix.span()]
            low = infix.end()
        spans += [(low, high)] if low < high else []
        spans += reversed(tails)
    return spans


def tulu_bytes(text: str) -> bytes:
    """Return a text in lower case, in UTF-8, with a space in place of each of Tulu's separators."""
    return text.lower().encode().translate(_TULU_SPACES)


def tulu_spans(text: str) -> Iterator[Span]:
    """Yield the spans of the words that Tulu's rule compares."""
    return (word.span() for word in _TULU_WORD.finditer(text))
