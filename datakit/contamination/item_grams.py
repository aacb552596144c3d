"""Make the index of benchmark items: the words of their channels, the weights of their grams, and the runs that place them."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.contamination.alignment import ALIGNED_CHANNELS, AlignedChannels
from datakit.contamination.answers import answer_channels
from datakit.contamination.channels import ChannelGrams, ItemIndex
from datakit.contamination.policy import WindowRules
from datakit.contamination.windows import word_weights
from datakit.text.canonical_text import canonical_bytes
from datakit.text.ngram_index import (
    Floats,
    GramIndex,
    Ints,
    UInt64s,
    Words,
    bit_table,
    build_index,
    gram_hashes,
    grams_at,
    hash_words,
    whole_grams,
)


def index_items(channels: pl.DataFrame, config: WindowRules) -> ItemIndex:
    """Index the channels of `channel_table`."""
    words = hash_words([canonical_bytes(text) for text in channels["text"]])
    item_of_channel = channels["item"].to_numpy()
    long_words = (words.num_bytes >= 3) & ~words.is_number
    num_numbers = segment_sums(words.is_number, words.bounds)
    wordy = (num_numbers > 0) & (np.diff(words.bounds) - num_numbers >= config.min_template_words)
    exact = _channel_grams(words, words.hashes, long_words, np.ones_like(wordy), item_of_channel, config)
    masked = _channel_grams(words, words.masked(), long_words, wordy, item_of_channel, config)
    may_align = exact.is_matchable() & channels["channel"].is_in(ALIGNED_CHANNELS).to_numpy()
    aligned = _aligned_channels(words, long_words, channels, may_align, config)
    begins = [words.bounds[grams.channels] + grams.positions for grams in (exact.index, masked.index, aligned.seeds)]
    prefixes = grams_at(words.masked(), np.unique(np.concatenate(begins)), config.seed_words)
    return ItemIndex(exact, masked, aligned, bit_table(np.unique(prefixes)))


def _channel_grams(
    words: Words,
    hashes: UInt64s,
    long_words: NDArray[np.bool_],
    wanted: NDArray[np.bool_],
    item_of_channel: Ints,
    config: WindowRules,
) -> ChannelGrams:
    """Compute the grams; `wanted` [channels] says which channels may be matched."""
    n = config.gram_words
    num_grams = max(len(hashes) - n + 1, 0)
    at, channels, positions = _gram_places(words.bounds, n, num_grams)
    grams = gram_hashes(hashes, n)[at]
    weights = _gram_weights(grams, item_of_channel[channels], config) * _has_content(hashes, long_words, n, config)[at]
    flat_weights = np.zeros(num_grams)
    flat_weights[at] = weights
    totals = segment_sums(word_weights(flat_weights, n), words.bounds).round(6)
    matchable = wanted & (totals >= config.min_channel_words)
    needed = np.where(matchable, config.needed_coverage(totals) * totals, np.inf)
    return ChannelGrams(
        hashes=grams,
        weights=weights,
        bounds=np.searchsorted(channels, np.arange(len(words.bounds))),
        total_weight=totals,
        needed_weight=needed,
        partial_weight=np.where(matchable, config.partial_of(totals, needed), np.inf),
        index=build_index(grams, weights * matchable[channels], channels, positions, n),
    )


def _aligned_channels(
    words: Words, long_words: NDArray[np.bool_], channels: pl.DataFrame, wanted: NDArray[np.bool_], config: WindowRules
) -> AlignedChannels:
    item_of_channel, lengths = channels["item"].to_numpy(), np.diff(words.bounds)
    is_varied = _different_words(words) >= np.minimum(config.min_channel_words, lengths - config.max_repeats)
    aligned = wanted & (lengths <= config.max_aligned_words) & is_varied
    num_items = len(np.unique(item_of_channel))
    information = np.log1p(num_items / _items_with(words.hashes, np.repeat(item_of_channel, lengths)))
    needed = config.needed_alignment(lengths)
    answers = answer_channels(channels)
    has_word = segment_sums((words.num_bytes >= 2) & ~words.is_number, words.bounds) > 0
    proves = has_word & (segment_sums(information, words.bounds) >= config.min_answer_information)
    answer_proves = (answers >= 0) & proves[answers]
    is_answered = aligned & answer_proves
    whole = lengths + np.where(answer_proves, lengths[answers], 0)
    is_short = lengths < config.min_channel_words
    is_joined = is_varied & answer_proves & ~wanted & is_short & (whole >= config.min_channel_words)
    is_placed = (is_answered & (lengths <= config.max_answered_words)) | is_joined
    return AlignedChannels(
        hashes=words.hashes,
        information=information,
        is_long=long_words,
        bounds=words.bounds,
        needed=np.where(aligned, needed, np.inf),
        partial=np.where(aligned, config.partial_of(lengths, needed * lengths) / np.maximum(lengths, 1), np.inf),
        answers=answers,
        answered=np.where(is_answered, config.answered_share, np.where(is_joined, config.short_aligned_share, np.inf)),
        seeds=_seeds(words, long_words, aligned, item_of_channel, config.seed_words, config),
        answered_seeds=_seeds(words, long_words, is_placed, item_of_channel, config.answered_seed_words, config),
    )


def _seeds(
    words: Words, long_words: NDArray[np.bool_], wanted: NDArray[np.bool_], item_of_channel: Ints, n: int, config: WindowRules
) -> GramIndex:
    """Index the runs of `n` words that place the `wanted` [channels]: few items share them, and they have content by the
    same rules as grams.
    """
    at, channels, positions = _gram_places(words.bounds, n, max(len(words.hashes) - n + 1, 0))
    seeds = gram_hashes(words.hashes, n)[at]
    is_rare = _gram_weights(seeds, item_of_channel[channels], config) >= 1
    is_used = is_rare & _has_content(words.hashes, long_words, n, config)[at] & wanted[channels]
    return build_index(seeds, is_used.astype(np.float64), channels, positions, n)


def _gram_places(bounds: Ints, n: int, num_grams: int) -> tuple[Ints, Ints, Ints]:
    """Return for every n-gram within one channel its place in the flat words, its channel, and its position there."""
    lengths = np.diff(bounds)
    at = np.flatnonzero(whole_grams(bounds, n, num_grams))
    channels = np.repeat(np.arange(len(lengths)), lengths)[at]
    return at, channels, at - bounds[channels]


def _has_content(hashes: UInt64s, long_words: NDArray[np.bool_], n: int, config: WindowRules) -> NDArray[np.bool_]:
    """Return which n-grams have enough different words and enough long words to be evidence."""
    enough_distinct = _distinct_words(hashes, n) >= min(config.min_gram_distinct_words, n)
    num_long = segment_sums(long_words, np.arange(len(hashes) + 1), n)
    return enough_distinct & (num_long >= min(config.min_gram_long_words, n))


def _gram_weights(grams: UInt64s, items: Ints, config: WindowRules) -> Floats:
    """Return 1 for up to `common_items` items, then `common_items` / items, and 0 beyond `ignored_items`. `items`
    [grams] is ascending.
    """
    num_items = _items_with(grams, items)
    return np.where(num_items > config.ignored_items, 0.0, np.minimum(1.0, config.common_items / num_items))


def _items_with(values: UInt64s, items: Ints) -> Ints:
    """Return for each occurrence of a word or gram how many items have it. `items` [values] is ascending."""
    order = np.argsort(values, kind="stable")  # The sort is stable, so the items of one value stay ascending.
    is_new_value = np.append(True, np.diff(values[order]) != 0)[: len(values)]
    is_new_item = is_new_value | np.append(True, np.diff(items[order]) != 0)[: len(values)]
    value = np.cumsum(is_new_value) - 1
    num_items = np.empty(len(values), np.int64)
    num_items[order] = np.bincount(value[is_new_item], minlength=1)[value]
    return num_items


def segment_sums(values: NDArray, bounds: Ints, span: int = 1) -> NDArray:
    """Return sums of `values[bounds[i] : bounds[i + span]]`."""
    prefix = np.concatenate(([0], np.cumsum(values)))[bounds]
    return prefix[span:] - prefix[:-span]


def _different_words(words: Words) -> Ints:
    """Return the number of different words of each channel."""
    channel = np.repeat(np.arange(len(words.bounds) - 1), np.diff(words.bounds))
    order = np.lexsort((words.hashes, channel))
    is_new = np.append(True, (np.diff(channel[order]) != 0) | (np.diff(words.hashes[order]) != 0))[: len(order)]
    return np.bincount(channel[order[is_new]], minlength=len(words.bounds) - 1)


def _distinct_words(hashes: UInt64s, n: int) -> Ints:
    """Return the number of different words of the n-gram that starts at each word."""
    count = max(len(hashes) - n + 1, 0)
    distinct = np.zeros(count, np.int64)
    for k in range(n):
        is_new = np.ones(count, np.bool_)
        for j in range(k):
            is_new &= hashes[k : k + count] != hashes[j : j + count]
        distinct += is_new
    return distinct
