"""Matching documents by a named policy: its grams looked up in bulk, its rule applied to what is found.

Work on a document is bounded by the different grams that it shares with the items, not by how often it repeats them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from datakit.byte_spans import Span, byte_spans
from datakit.contamination_named import DatatrovePolicy, DolmaPolicy, GptPolicy, MarinPolicy, NamedPolicy, TuluPolicy
from datakit.contamination_named_index import Cut, NamedIndex, cut, grams_of
from datakit.contamination_named_words import (
    datatrove_spans,
    gpt_spans,
    has_letter,
    line_spans,
    marin_paragraphs,
    token_spans,
    tulu_spans,
)
from datakit.contamination_scan import ChannelMatch
from datakit.ngram_index import Floats, Ints, UInt64s

NO_GRAMS = np.empty(0, np.uint64)


@dataclass(frozen=True)
class _Hits:
    """Grams of the documents that the index has [hits]; `lengths` in words, `grams` numbered within their length."""

    segments: Ints
    places: Ints
    lengths: Ints
    grams: Ints
    hashes: UInt64s

    def of(self, rows: Ints) -> "_Hits":
        return _Hits(self.segments[rows], self.places[rows], self.lengths[rows], self.grams[rows], self.hashes[rows])


@dataclass(frozen=True)
class _Shared:
    """Grams that a document and a channel share, each once: where it lies first, and where in the channel."""

    documents: Ints
    channels: Ints
    places: Ints
    lengths: Ints
    positions: Ints
    scores: Floats


def scan_named(texts: Sequence[str], index: NamedIndex, policy: NamedPolicy, ignored: UInt64s = NO_GRAMS) -> list[ChannelMatch]:
    """Every channel that each document holds by the policy, ordered by (document, channel).

    `ignored`: hashes of grams that too many documents hold. A match's span is the longest stretch of the document that shared
    grams cover without a gap, `longest_run` its words.
    """
    pieces = cut(texts, policy)
    hits = _hits(pieces, index, policy)
    if len(ignored):
        hits = hits.of(np.flatnonzero(~np.isin(hits.hashes, ignored)))
    shared = _flagged(texts, pieces, hits, index, policy)
    found = []
    first_words = pieces.first_words
    for document, pairs in groupby(_by_pair(shared), key=lambda pair: pair[0][0]):
        words = list(_spans(texts[document], policy))
        verdicts, spans = [], []
        for (_, channel), rows in pairs:
            low, high = _longest_stretch(shared.places[rows] - first_words[document], shared.lengths[rows])
            spans.append((words[low][0], words[high - 1][1]))
            verdicts.append((channel, round(float(shared.scores[rows[0]]), 4), high - low))
        for (channel, score, run), span in zip(verdicts, byte_spans(texts[document], spans), strict=True):
            found.append(ChannelMatch(document, channel, "near", score, *span, run))
    return found


def grams_by_document(texts: Sequence[str], index: NamedIndex, policy: NamedPolicy) -> tuple[UInt64s, Ints]:
    """(hashes of the items' grams that the texts hold, how many of the texts hold each)."""
    pieces = cut(texts, policy)
    hits = _hits(pieces, index, policy)
    pairs = np.unique(np.stack([pieces.texts[hits.segments].astype(np.uint64), hits.hashes]), axis=1)
    return np.unique(pairs[1], return_counts=True)


def _hits(pieces: Cut, index: NamedIndex, policy: NamedPolicy) -> _Hits:
    parts = []
    for grams in index.grams:
        places, hashes = grams_of(pieces, grams.n, policy)
        where, found = grams.lookup(hashes)
        segments = np.searchsorted(pieces.bounds, places[where], side="right") - 1
        parts.append(_Hits(segments, places[where], np.full(len(where), grams.n), found, hashes[where]))
    names = ("segments", "places", "lengths", "grams")
    columns = {name: np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)]) for name in names}
    return _Hits(**columns, hashes=np.concatenate([NO_GRAMS, *(part.hashes for part in parts)]))


def _flagged(texts: Sequence[str], pieces: Cut, hits: _Hits, index: NamedIndex, policy: NamedPolicy) -> _Shared:
    """What documents share with the channels that the policy's rule flags in them."""
    match policy:
        case MarinPolicy():
            segments, num_hits = np.unique(hits.segments, return_counts=True)
            features = [_num_features(texts, pieces, int(segment), policy) for segment in segments]
            shares = num_hits / np.array(features, np.float64)
            flagged = shares >= policy.overlap_threshold
            inside = np.flatnonzero(np.isin(hits.segments, segments[flagged]))
            share_of = np.zeros(len(pieces.texts))
            share_of[segments] = shares
            return _best_first(_shared(hits.of(inside), pieces, index, share_of))
        case TuluPolicy():
            shared = _shared(hits, pieces, index, np.zeros(len(pieces.texts)))
            scores = _token_shares(shared, index, policy.gram_tokens)
            return _rows(shared, np.flatnonzero(scores > policy.overlap_threshold), scores)
        case GptPolicy() | DatatrovePolicy() | DolmaPolicy():
            return _shared(hits, pieces, index, np.ones(len(pieces.texts)))


def _shared(hits: _Hits, pieces: Cut, index: NamedIndex, score_of_segment: Floats) -> _Shared:
    """Each different gram of a segment against all channels that have it."""
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
    shared = _Shared(documents, channels, places, lengths, positions, joined[-1].astype(np.float64))
    return _rows(shared, np.lexsort((places, channels, documents)), shared.scores)


def _rows(shared: _Shared, rows: Ints, scores: Floats) -> _Shared:
    names = ("documents", "channels", "places", "lengths", "positions")
    return _Shared(**{name: getattr(shared, name)[rows] for name in names}, scores=scores[rows])


def _best_first(shared: _Shared) -> _Shared:
    """Of several flagged paragraphs with one channel's grams, the one with the largest share stands first."""
    return _rows(shared, np.lexsort((shared.places, -shared.scores, shared.channels, shared.documents)), shared.scores)


def _token_shares(shared: _Shared, index: NamedIndex, gram_tokens: int) -> Floats:
    """For every row, the share of its channel's tokens that grams shared with its document cover."""
    pairs = np.stack([shared.documents, shared.channels])
    unique, pair = np.unique(pairs, axis=1, return_inverse=True)
    width = int(index.num_tokens.max(initial=0)) + 1
    tokens = shared.positions[:, None] + np.arange(gram_tokens)
    covered = np.unique(pair.reshape(-1, 1) * width + tokens)
    counts = np.bincount(covered // width, minlength=unique.shape[1])
    return (counts / np.maximum(index.num_tokens[unique[1]], 1))[pair.reshape(-1)]


def _num_features(texts: Sequence[str], pieces: Cut, segment: int, policy: MarinPolicy) -> int:
    """Features of one paragraph: 1 of a short one, of a longer one its grams with a letter."""
    document = int(pieces.texts[segment])
    first = int(np.searchsorted(pieces.texts, document))
    words = marin_paragraphs(texts[document], policy.min_short_words, policy.gram_words)[segment - first]
    if len(words) < policy.gram_words:
        return 1
    letters = np.concatenate(([0], np.cumsum([has_letter(word) for word in words])))
    return int(np.count_nonzero(letters[policy.gram_words :] > letters[: -policy.gram_words]))


def _by_pair(shared: _Shared) -> Iterator[tuple[tuple[int, int], list[int]]]:
    pairs = list(zip(shared.documents.tolist(), shared.channels.tolist(), strict=True))
    for pair, rows in groupby(range(len(pairs)), key=lambda row: pairs[row]):
        yield pair, list(rows)


def _longest_stretch(places: Ints, lengths: Ints) -> tuple[int, int]:
    """(first word, word after the last) of the longest run of words that the grams cover without a gap, the first of equals."""
    order = np.argsort(places, kind="stable")
    starts, ends = places[order], np.maximum.accumulate((places + lengths)[order])
    firsts = np.append(0, np.flatnonzero(starts[1:] > ends[:-1]) + 1)
    lasts = np.append(firsts[1:] - 1, len(starts) - 1)
    best = int(np.argmax(ends[lasts] - starts[firsts]))
    return int(starts[firsts[best]]), int(ends[lasts[best]])


def _spans(text: str, policy: NamedPolicy) -> Iterator[Span]:
    """Where each word of the policy's cut lies in a text."""
    spans = {"marin": token_spans, "gpt3": gpt_spans, "tulu": tulu_spans, "datatrove": datatrove_spans, "dolma": line_spans}
    return spans[policy.kind](text)
