"""Policies by shared n-grams: the items' grams as an index, documents cut the same way, grams looked up in bulk.

`GramPolicy` is the base of policies that other groups published (`gpt3.py`, `tulu.py`). A
policy says how it cuts texts into words, which grams it indexes and which shared grams mark a document; the rest is
here. Such policies have no grades, so every match is of the tier `near`.

The work on a document is bounded by the different grams that it shares with the items, not by how often it repeats
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.contamination.leak_forms import Item, lm_eval_text
from datakit.contamination.protocol import ChannelMatch, CommonGrams, GramCounts
from datakit.text.arrays import load_all, save_all
from datakit.text.byte_spans import Span, byte_spans
from datakit.text.ngram_index import (
    Floats,
    GramIndex,
    Ints,
    UInt64s,
    build_index,
    gram_hashes,
    grams_at,
    hash_words,
    whole_grams,
)


@dataclass(frozen=True)
class Cut:
    """Texts in the words of a policy. Segment `s` of text `texts[s]` has the words `bounds[s]` to `bounds[s + 1]`."""

    words: UInt64s
    bounds: Ints
    texts: Ints

    @property
    def first_words(self) -> Ints:
        """[texts + 1]: first word of each text."""
        last = int(self.texts[-1]) + 1 if len(self.texts) else 0
        return self.bounds[np.searchsorted(self.texts, np.arange(last + 1))]


@dataclass(frozen=True)
class NamedIndex:
    """Grams of the channels by length, ascending; `num_tokens` [channels] is the size of a prompt, from which shares
    are computed.
    """

    grams: tuple[GramIndex, ...]
    num_tokens: Ints

    def is_matchable(self) -> NDArray[np.bool_]:
        """[channels] whether the channel has any gram."""
        matchable = np.zeros(len(self.num_tokens), np.bool_)
        for grams in self.grams:
            matchable[grams.channels] = True
        return matchable

    def save(self, folder: Path) -> None:
        for grams in self.grams:
            grams.save(folder / f"grams-{grams.n:03d}")
        save_all(folder, num_tokens=self.num_tokens)

    @classmethod
    def load(cls, folder: Path) -> "NamedIndex":
        return cls(tuple(GramIndex.load(path) for path in sorted(folder.glob("grams-*"))), **load_all(folder))


@dataclass(frozen=True)
class Hits:
    """Grams of the documents that the index has [hits]; `lengths` in words; `grams` are numbered within their length."""

    segments: Ints
    places: Ints
    lengths: Ints
    grams: Ints
    hashes: UInt64s

    def of(self, rows: Ints) -> "Hits":
        return Hits(self.segments[rows], self.places[rows], self.lengths[rows], self.grams[rows], self.hashes[rows])


@dataclass(frozen=True)
class Shared:
    """Grams that a document and a channel share, each once [shared]: its first place in the document and in the
    channel.
    """

    documents: Ints
    channels: Ints
    places: Ints
    lengths: Ints
    positions: Ints
    scores: Floats

    def of(self, rows: Ints, scores: Floats) -> "Shared":
        """Return some rows, with the scores of all rows replaced."""
        columns = (self.documents, self.channels, self.places, self.lengths, self.positions)
        return Shared(*(column[rows] for column in columns), scores=scores[rows])


class GramPolicy(ABC):
    """The parts of the `Policy` protocol that policies by grams share. A subclass is a frozen dataclass."""

    channel: ClassVar[str] = "record"
    """What the policy matches of an item."""

    def document_limit(self, num_documents: int) -> int:
        return num_documents

    @property
    def common_grams(self) -> CommonGrams:
        return "kept"

    def text_of(self, item: Item) -> str:
        """Return the text of an item that is indexed: lm-eval's prompt with the gold answer."""
        return lm_eval_text(item)

    @abstractmethod
    def cut(self, texts: Sequence[str]) -> Cut:
        """Cut the texts into words; no gram crosses a segment."""

    @abstractmethod
    def spans(self, text: str) -> Iterator[Span]:
        """Return where each word of `cut` lies in a text."""

    def grams_of(self, cut: Cut, n: int) -> tuple[Ints, UInt64s]:
        """Return (first words, hashes) of every gram of `n` words that the policy takes from texts."""
        hashes = gram_hashes(cut.words, n)
        places = np.flatnonzero(whole_grams(cut.bounds, n, len(hashes)))
        return places, hashes[places]

    @abstractmethod
    def build(self, items: pl.DataFrame, channels: pl.DataFrame) -> NamedIndex:
        """Return the grams of the channels."""

    def flagged(self, texts: Sequence[str], pieces: Cut, hits: Hits, index: NamedIndex) -> Shared:
        """Return the shared grams that mark documents, with the score of each pair; by default every shared gram, score
        1.
        """
        del texts
        return shared_grams(hits, pieces, index, np.ones(len(pieces.texts)))

    def channels(self, items: pl.DataFrame) -> pl.DataFrame:
        """Return one row for each item: `item` (its row), `task`, `channel`, `text`."""
        rows = [(at, item["task"], self.channel, self.text_of(item)) for at, item in enumerate(items.iter_rows(named=True))]
        schema = {"item": pl.Int64, "task": pl.String, "channel": pl.String, "text": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def index(self, items: pl.DataFrame, channels: pl.DataFrame) -> "GramPolicyIndex":
        return GramPolicyIndex(self.build(items, channels), self)

    def load_index(self, folder: Path) -> "GramPolicyIndex":
        return GramPolicyIndex(NamedIndex.load(folder), self)


@dataclass(frozen=True)
class GramPolicyIndex:
    """A `NamedIndex` with its policy. `ignored`: hashes of grams that too many documents of the source hold."""

    index: NamedIndex
    policy: GramPolicy
    ignored: UInt64s | None = None

    def is_matchable(self) -> NDArray[np.bool_]:
        return self.index.is_matchable()

    def finds_parts(self) -> NDArray[np.bool_]:
        """Return False for each channel: what a published rule finds of halves and edited copies is not known."""
        return np.zeros(len(self.index.num_tokens), np.bool_)

    def save(self, folder: Path) -> None:
        self.index.save(folder)

    def scan(self, texts: Sequence[str]) -> list[ChannelMatch]:
        """Return every channel that each document holds. A span is the longest stretch that shared grams cover without
        a gap.
        """
        policy, pieces = self.policy, self.policy.cut(texts)
        hits = _hits(pieces, self.index, policy)
        if self.ignored is not None:
            hits = hits.of(np.flatnonzero(~np.isin(hits.hashes, self.ignored)))
        shared = policy.flagged(texts, pieces, hits, self.index)
        matches = []
        first_words = pieces.first_words
        for document, pairs in groupby(_by_pair(shared), key=lambda pair: pair[0][0]):
            words = list(policy.spans(texts[document]))
            verdicts, spans = [], []
            for (_, channel), rows in pairs:
                low, high = _longest_stretch(shared.places[rows] - first_words[document], shared.lengths[rows])
                spans.append((words[low][0], words[high - 1][1]))
                verdicts.append((channel, round(float(shared.scores[rows[0]]), 4), high - low))
            for (channel, score, run), span in zip(verdicts, byte_spans(texts[document], spans), strict=True):
                matches.append(ChannelMatch(document, channel, "near", score, *span, run))
        return matches

    def scan_counting(self, texts: Sequence[str]) -> tuple[list[ChannelMatch], GramCounts]:
        return self.scan(texts), GramCounts()

    def marked_pairs(self, texts: Sequence[str]) -> list[tuple[int, int]]:
        return [(match.document, match.channel) for match in self.scan(texts)]

    def count_grams(self, texts: Sequence[str]) -> GramCounts:
        pieces = self.policy.cut(texts)
        hits = _hits(pieces, self.index, self.policy)
        pairs = np.unique(np.stack([pieces.texts[hits.segments].astype(np.uint64), hits.hashes]), axis=1)
        return GramCounts(exact=np.unique(pairs[1], return_counts=True))

    def without(self, common: pl.DataFrame) -> "GramPolicyIndex":
        return GramPolicyIndex(self.index, self.policy, common["gram"].to_numpy())

    def affected_channels(self, common: pl.DataFrame) -> NDArray[np.int64]:
        parts = [np.empty(0, np.int64)]
        for grams in self.index.grams:
            rows = np.flatnonzero(np.isin(grams.grams, common["gram"].to_numpy()))
            parts.append(grams.expand(rows, rows)[1].astype(np.int64))
        return np.unique(np.concatenate(parts))


type Phrase = tuple[int, int, bytes]
"""Channel, position in it, number of words."""


def index_phrases(phrases: Sequence[Phrase]) -> tuple[GramIndex, ...]:
    """Build an index of phrases for each of their lengths in words."""
    words = hash_words([phrase for _, _, phrase in phrases])
    lengths = np.diff(words.bounds)
    channels = np.array([channel for channel, _, _ in phrases], np.int64)
    positions = np.array([position for _, position, _ in phrases], np.int64)
    return tuple(
        ordered_index(grams_at(words.hashes, words.bounds[:-1][rows], n), channels[rows], positions[rows], n)
        for n in np.unique(lengths[lengths > 0]).tolist()
        for rows in [np.flatnonzero(lengths == n)]
    )


def index_records(
    policy: GramPolicy, pieces: Cut, lengths: Sequence[Sequence[int]], keeps: NDArray[np.bool_] | None = None
) -> Iterator[GramIndex]:
    """Build an index of the grams of records for each length. `lengths`: gram length of each text, in words."""
    for n in np.unique(np.concatenate(list(map(np.asarray, lengths)))).tolist():
        places, hashes = policy.grams_of(pieces, n)
        of = pieces.texts[np.searchsorted(pieces.bounds, places, side="right") - 1]
        kept = np.array([n in each for each in lengths], np.bool_)[of] & policy_keeps(keeps, places, n)
        yield ordered_index(hashes[kept], of[kept], (places - pieces.first_words[of])[kept], n)


def policy_keeps(is_kept: NDArray[np.bool_] | None, places: Ints, n: int) -> NDArray[np.bool_]:
    """Return whether any word of the gram at each place is kept; None keeps all grams."""
    if is_kept is None:
        return np.ones(len(places), np.bool_)
    counted = np.concatenate(([0], np.cumsum(is_kept)))
    return counted[places + n] > counted[places]


def ordered_index(grams: UInt64s, channels: Ints, positions: Ints, n: int) -> GramIndex:
    """Build an index in which all grams weigh 1, from postings in any order."""
    order = np.lexsort((positions, channels))
    return build_index(grams[order], np.ones(len(grams)), channels[order], positions[order], n)


def shared_grams(hits: Hits, pieces: Cut, index: NamedIndex, score_of_segment: Floats) -> Shared:
    """Return each different gram of a segment with all channels that have it, ordered by (document, channel, place)."""
    columns: list[list[np.ndarray]] = [[] for _ in range(6)]
    for grams in index.grams:
        rows = np.flatnonzero(hits.lengths == grams.n)
        keys = hits.segments[rows] * max(len(grams.grams), 1) + hits.grams[rows]
        rows = rows[np.unique(keys, return_index=True)[1]]
        row, channels, positions = grams.expand(rows, hits.grams[rows])
        segments = hits.segments[row]
        values = (pieces.texts[segments], channels, hits.places[row], hits.lengths[row], positions, score_of_segment[segments])
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    joined = [np.concatenate([np.empty(0, np.int64), *column]) for column in columns]
    documents, channels, places, lengths, positions = (column.astype(np.int64) for column in joined[:-1])
    shared = Shared(documents, channels, places, lengths, positions, joined[-1].astype(np.float64))
    return shared.of(np.lexsort((places, channels, documents)), shared.scores)


def check_count(name: str, value: int) -> None:
    """Raises: ValueError for a count below 1."""
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def check_share(name: str, value: float) -> None:
    """Raises: ValueError for a share that is not above 0 and at most 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} is {value}; a share must be above 0 and at most 1")


def check_canaries(num_canaries: int, min_canary_recall: float) -> None:
    """Check the settings of planted items. Raises: ValueError."""
    if num_canaries < 1:
        raise ValueError(f"num_canaries is {num_canaries}; a scan must plant at least 1 item to prove that it can find")
    if not 0 <= min_canary_recall <= 1:
        raise ValueError(f"min_canary_recall is {min_canary_recall}; a share must be in 0..1")


def _hits(pieces: Cut, index: NamedIndex, policy: GramPolicy) -> Hits:
    parts = []
    for grams in index.grams:
        places, hashes = policy.grams_of(pieces, grams.n)
        where, is_known = grams.lookup(hashes)
        segments = np.searchsorted(pieces.bounds, places[where], side="right") - 1
        parts.append(Hits(segments, places[where], np.full(len(where), grams.n), is_known, hashes[where]))
    names = ("segments", "places", "lengths", "grams")
    columns = {name: np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)]) for name in names}
    return Hits(**columns, hashes=np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]))


def _by_pair(shared: Shared) -> Iterator[tuple[tuple[int, int], list[int]]]:
    pairs = list(zip(shared.documents.tolist(), shared.channels.tolist(), strict=True))
    for pair, rows in groupby(range(len(pairs)), key=lambda row: pairs[row]):
        yield pair, list(rows)


def _longest_stretch(places: Ints, lengths: Ints) -> tuple[int, int]:
    """Return (first word, word after the last) of the longest run of words that grams cover without a gap; the first of
    equals.
    """
    order = np.argsort(places, kind="stable")
    starts, ends = places[order], np.maximum.accumulate((places + lengths)[order])
    firsts = np.append(0, np.flatnonzero(starts[1:] > ends[:-1]) + 1)
    lasts = np.append(firsts[1:] - 1, len(starts) - 1)
    best = int(np.argmax(ends[lasts] - starts[firsts]))
    return int(starts[firsts[best]]), int(ends[lasts[best]])
