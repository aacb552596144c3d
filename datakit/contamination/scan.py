"""Match documents against an item index: one vectorised pass over all words, then the scorer on the few places that
remain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from datakit.contamination.alignment import Placed, aligned_windows
from datakit.contamination.bounds import may_match
from datakit.contamination.channels import ChannelGrams, ItemIndex
from datakit.contamination.policy import Window, WindowRules
from datakit.contamination.protocol import ChannelMatch, GramCounts
from datakit.contamination.windows import best_window
from datakit.text.byte_spans import Span, byte_spans
from datakit.text.canonical_text import canonical_batch, token_spans
from datakit.text.ngram_index import Floats, Ints, UInt64s, Words, grams_in_table, hash_buffer
from lineage.match_tiers import PARTIAL, STANDING_TIERS, Tier


def scan(texts: Sequence[str], index: ItemIndex, config: WindowRules) -> list[ChannelMatch]:
    """Return every channel that each document holds, with its best window, ordered by (document, channel)."""
    return scan_counting(texts, index, config)[0]


def scan_counting(texts: Sequence[str], index: ItemIndex, config: WindowRules) -> tuple[list[ChannelMatch], GramCounts]:
    """Return `scan`, and in how many of the texts each gram of the items occurs."""
    words = hash_buffer(*canonical_batch(texts))
    hits, windows = _all_windows(words, index, config)
    matches: list[ChannelMatch] = []
    for document, group in groupby(_verdicts(words, windows, index, config), key=lambda verdict: verdict[0][0]):
        verdicts = list(group)
        spans = _spans(texts[document], [window for *_, window in verdicts])
        matches += [
            ChannelMatch(*pair, tier, round(window.coverage, 4), *span, window.longest_run)
            for (pair, tier, window), span in zip(verdicts, spans, strict=True)
        ]
    return matches, GramCounts(_document_counts(hits[0], index.exact), _document_counts(hits[1], index.masked))


def standing_pairs(texts: Sequence[str], index: ItemIndex, config: WindowRules) -> list[tuple[int, int]]:
    """Return (document, channel) of every match of `scan` that counts as a leak. Its place is not computed, which saves half of
    the time.
    """
    words = hash_buffer(*canonical_batch(texts))
    _, windows = _all_windows(words, index, config)
    return [pair for pair, tier, _ in _verdicts(words, windows, index, config) if tier in STANDING_TIERS]


def _document_counts(hits: "_Hits", channels: ChannelGrams) -> tuple[UInt64s, Ints]:
    num_grams = max(len(channels.index.grams), 1)
    grams, counts = np.unique(np.unique(hits.documents * num_grams + hits.grams) % num_grams, return_counts=True)
    return channels.index.grams[grams], counts


def _spans(text: str, windows: Sequence[Window]) -> list[Span]:
    """Return the bytes from the first to the last word of each window."""
    if not windows:
        return []
    ends = token_spans(text, [word for window in windows for word in (window.start, window.end - 1)])
    return byte_spans(text, [(start, end) for (start, _), (_, end) in zip(ends[::2], ends[1::2], strict=True)])


type _Windows = dict[tuple[int, int], Window]


@dataclass(frozen=True)
class _Hits:
    """Return words of the documents where a gram of the channels begins, the document, and the gram [hits]."""

    places: Ints
    documents: Ints
    grams: Ints


@dataclass(frozen=True)
class _AllWindows:
    """Return the best window of every pair (document, channel), by each way of matching."""

    exact: _Windows
    masked: _Windows
    aligned: dict[tuple[int, int], Placed]


def _all_windows(words: Words, index: ItemIndex, config: WindowRules) -> tuple[tuple[_Hits, _Hits], _AllWindows]:
    """Return (hits with the original numbers, hits with masked numbers), and their windows."""
    masked = words.masked()
    places = grams_in_table(index.prefixes, masked, config.seed_words)
    exact_hits = _hits(words.hashes, words.bounds, places, index.exact)
    masked_hits = _hits(masked, words.bounds, places, index.masked)
    return (exact_hits, masked_hits), _AllWindows(
        exact=dict(_windows(exact_hits, words.bounds, index.exact, index.exact.partial_weight, config)),
        masked=dict(_windows(masked_hits, words.bounds, index.masked, index.masked.needed_weight, config)),
        aligned=dict(aligned_windows(words.hashes, words.bounds, places, index.aligned, config)),
    )


def _verdicts(
    words: Words, windows: _AllWindows, index: ItemIndex, config: WindowRules
) -> Iterator[tuple[tuple[int, int], Tier, Window]]:
    """Return the pairs that match, in their order, with the tier and the window of each."""
    for pair in sorted({*windows.exact, *windows.masked, *windows.aligned}):
        if (verdict := _verdict(pair, windows, index, config)) is not None:
            tier, window, needed = verdict
            is_symbols = needed > 0 and _long_words(words, pair, window, index) < needed
            yield pair, PARTIAL if is_symbols else tier, window


def _long_words(words: Words, pair: tuple[int, int], window: Window, index: ItemIndex) -> int:
    """Return how many different long words of the channel the window holds."""
    document, channel = pair
    first = int(words.bounds[document])
    own = slice(*index.aligned.bounds[channel : channel + 2].tolist())
    wanted = index.aligned.hashes[own][index.aligned.is_long[own]]
    return len(np.intersect1d(wanted, words.hashes[first + window.start : first + window.end]))


def _verdict(
    pair: tuple[int, int], windows: _AllWindows, index: ItemIndex, config: WindowRules
) -> tuple[Tier, Window, int] | None:
    """Return the tier, the window, and how many different long words the window needs, else the match is partial."""
    _, channel = pair
    own, numberless, placed = windows.exact.get(pair), windows.masked.get(pair), windows.aligned.get(pair)
    tier = None if own is None else _own_tier(own, channel, index, config)
    if own is not None and tier in STANDING_TIERS:
        return tier, own, 0 if tier == "verbatim" else config.min_long_words
    if numberless is not None and numberless.coverage >= index.masked.needed_coverage(channel):
        return "template", numberless, config.min_long_words
    if placed is not None and placed.stands:
        return "near", placed.window, config.min_long_words - placed.is_answered
    if placed is not None and tier != PARTIAL:
        return PARTIAL, placed.window, 0
    return None if own is None or tier is None else (tier, own, 0)


def _own_tier(window: Window, channel: int, index: ItemIndex, config: WindowRules) -> Tier | None:
    partial = float(index.exact.partial_weight[channel] / index.exact.total_weight[channel])
    return config.tier(window, index.exact.needed_coverage(channel), partial)


def _hits(words: UInt64s, bounds: Ints, begins: Ints, channels: ChannelGrams) -> _Hits:
    """Find hits; `begins` says where grams may begin."""
    return _Hits(*channels.index.lookup_at(words, bounds, begins))


def _windows(
    hits: _Hits, bounds: Ints, channels: ChannelGrams, least: Floats, config: WindowRules
) -> Iterator[tuple[tuple[int, int], Window]]:
    """Return ((document, channel), best window) of every pair that may reach the weight `least` [channels] or holds a
    fragment.
    """
    grams = channels.index.grams[hits.grams]
    hit_bounds = np.searchsorted(hits.documents, np.arange(len(bounds)))
    candidates = _candidates(hits.documents, hits.grams, channels, least, config)
    for document, channel in _promising(candidates, hits, hit_bounds, channels, least, config).tolist():
        mine = slice(int(hit_bounds[document]), int(hit_bounds[document + 1]))
        window = _score(hits.places[mine] - bounds[document], grams[mine], channel, channels, float(least[channel]), config)
        if window is not None:
            yield (document, channel), window


def _candidates(documents: Ints, grams: Ints, channels: ChannelGrams, least: Floats, config: WindowRules) -> Ints:
    """Return int64 [pairs, 2], document and channel, with enough different shared grams to reach `least` or to hold a
    fragment.

    It counts different grams, not hits. This bounds the work on a document that repeats one phrase a million times.
    """
    index = channels.index
    num_grams, num_channels = max(len(index.grams), 1), max(len(channels.total_weight), 1)
    distinct = np.unique(documents * num_grams + grams)
    where, channel, _ = index.expand(distinct // num_grams, distinct % num_grams)
    pairs, counts = np.unique(where * num_channels + channel, return_counts=True)
    n = config.gram_words
    enough = (counts * n >= least[pairs % num_channels]) | (counts >= config.fragment_words - n + 1)
    return np.stack(np.divmod(pairs[enough], num_channels), axis=1)


def _promising(pairs: Ints, hits: _Hits, hit_bounds: Ints, channels: ChannelGrams, least: Floats, config: WindowRules) -> Ints:
    """Return the pairs that may have a window."""
    index, channel, n = channels.index, pairs[:, 1], config.gram_words
    num_words = channels.bounds[channel + 1] - channels.bounds[channel] + n - 1
    may = may_match(
        pairs,
        hits.places,
        hits.grams,
        hit_bounds,
        index.channels,
        index.positions,
        index.offsets,
        channels.weights,
        channels.bounds,
        np.stack([channels.needed_weight[channel], least[channel]], axis=1),
        config.gap_words + config.gap_share * num_words,
        np.array([n, config.fragment_words, config.partial_words]),
    )
    return pairs[may]


def _score(
    places: Ints, grams: UInt64s, channel: int, channels: ChannelGrams, least: float, config: WindowRules
) -> Window | None:
    """Join a document's hits with the grams of one channel and return the best window."""
    of_channel = channels.of(channel)
    weights, hashes = channels.weights[of_channel], channels.hashes[of_channel]
    kept = np.flatnonzero(weights > 0)
    order = kept[np.argsort(hashes[kept], kind="stable")]
    ordered = hashes[order]
    low, high = np.searchsorted(ordered, grams, side="left"), np.searchsorted(ordered, grams, side="right")
    counts = high - low
    rows = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    needed, partial = channels.needed_coverage(channel), least / float(channels.total_weight[channel])
    return best_window(np.repeat(places, counts), order[rows], weights, needed, partial, config)
