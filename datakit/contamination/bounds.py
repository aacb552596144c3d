"""Compiled tests that reject most places before they are scored: what they reject cannot match.

The scorers (`windows.best_window`, `alignment`) are array code and take 70 us a pair of a document and a channel; four of
five pairs come to nothing. These loops take about 1 us. They add in another order than the scorers do, so they reject
only what misses a limit by more than `SLACK`. What they let pass is scored as before, so no result depends on them.
"""

import numpy as np
from numpy.typing import NDArray

from datakit.text.compiled import compiled
from datakit.text.ngram_index import Floats, Ints, UInt64s

SLACK = 1e-4
"""Far above rounding: weights of channels are rounded to 6 digits, and scores too."""


_REMEMBERED = 1 << 10


@compiled
def may_match(
    pairs: Ints,
    places: Ints,
    grams: Ints,
    hit_bounds: Ints,
    posting_channels: Ints,
    posting_positions: Ints,
    offsets: Ints,
    weights: Floats,
    bounds: Ints,
    limits: Floats,
    gaps: NDArray[np.floating],
    rules: Ints,
) -> NDArray[np.bool_]:
    """Return bool [pairs]: whether `best_window` may find a window.

    `pairs` [pairs, 2]: document and channel. `places` and `grams` [hits], by document (`hit_bounds`) and place. Postings
    of each gram (`offsets`), by channel and position. `weights` of the grams of the channels (`bounds`). `limits`
    [pairs, 2]: the weights that are needed and that are a part. `gaps` [pairs]: the most words between two hits of a
    window. `rules`: words of a gram, of a fragment, and of a part.
    """
    words, fragment_words, partial_words = rules[0], rules[1], rules[2]
    may = np.zeros(pairs.shape[0], np.bool_)
    longest = 0
    for pair in range(pairs.shape[0]):
        longest = max(longest, bounds[pairs[pair, 1] + 1] - bounds[pairs[pair, 1]])
    shared, run, at = np.zeros(longest, np.bool_), np.zeros(longest, np.int64), np.full(longest, -2, np.int64)
    for pair in range(pairs.shape[0]):
        document, channel = pairs[pair, 0], pairs[pair, 1]
        first, size = bounds[channel], bounds[channel + 1] - bounds[channel]
        needed, partial = limits[pair, 0], limits[pair, 1]
        shared[:size] = False
        at[:size] = -2
        count, best_run, last = 0, 0, np.int64(-1)
        for hit in range(hit_bounds[document], hit_bounds[document + 1] + 1):
            is_end = hit == hit_bounds[document + 1]
            low, high = np.int64(0), np.int64(0)
            if not is_end:
                low, high = offsets[grams[hit]], offsets[grams[hit] + 1]
                end = high
                while low < high:  # the first posting of the channel
                    middle = (low + high) // 2
                    if posting_channels[middle] < channel:
                        low = middle + 1
                    else:
                        high = middle
                high = low
                while high < end and posting_channels[high] == channel:
                    high += 1
                if low == high:
                    continue
            if count and (is_end or places[hit] - last > words + gaps[pair]):  # a window ends here
                covered = 0.0
                if count * words >= partial - SLACK:
                    heaviest = np.zeros(words)
                    for word in range(size + words - 1):
                        heaviest[word % words] = weights[first + word] if word < size and shared[word] else 0.0
                        covered += heaviest.max()
                length = best_run + words - 1 if best_run else 0
                if (
                    covered >= needed - SLACK
                    or length >= fragment_words
                    or (covered >= partial - SLACK and length >= partial_words)
                ):
                    may[pair] = True
                    break
                shared[:size] = False
                count, best_run = 0, 0
            if is_end:
                break
            last = places[hit]
            # Downwards, so that the row before is still the one of the word before.
            for posting in range(high - 1, low - 1, -1):
                position = posting_positions[posting]
                shared[position] = True
                count += 1
                if weights[first + position] >= 1:
                    follows = position > 0 and at[position - 1] == last - 1
                    run[position] = run[position - 1] + 1 if follows else 1
                    at[position] = last
                    best_run = max(best_run, run[position])
    return may


@compiled
def placements_that_may_align(
    words: UInt64s,
    bounds: Ints,
    places: Ints,
    documents: Ints,
    seeds: Ints,
    offsets: Ints,
    posting_channels: Ints,
    posting_positions: Ints,
    hashes: UInt64s,
    information: Floats,
    channel_bounds: Ints,
    least: Floats,
    slack: int,
) -> Ints:
    """Return int64 [placements, 3], document, channel, start: where seeds place a channel that may reach its score
    (`alignment.Placements`).

    `places`, `documents` and `seeds` [hits], by place: seeds that were found (`GramIndex.lookup_at`). `least` [channels]: the
    lowest score that matters. A placement that was just tested is not tested again; it may be returned more than once.
    """
    most = 0
    for hit in range(places.size):
        most += offsets[seeds[hit] + 1] - offsets[seeds[hit]]
    rows, count = np.empty((most, 3), np.int64), 0
    last = np.full((_REMEMBERED, 3), -1, np.int64)
    for hit in range(places.size):
        document = documents[hit]
        low, high = bounds[document], bounds[document + 1]
        for posting in range(offsets[seeds[hit]], offsets[seeds[hit] + 1]):
            channel = posting_channels[posting]
            start = places[hit] - posting_positions[posting]
            slot = channel % _REMEMBERED
            if last[slot, 0] == channel and last[slot, 1] == document and last[slot, 2] == start:
                continue
            last[slot, 0], last[slot, 1], last[slot, 2] = channel, document, start
            first, end = channel_bounds[channel], channel_bounds[channel + 1]
            in_place, known, known_in_place = 0, 0.0, 0.0
            score = least[channel] - SLACK
            few = (end - first) * score
            for word in range(first, end):
                if in_place + end - word < few:
                    break
                middle = start + word - first
                known += information[word]
                for place in range(max(middle - slack, low), min(middle + slack + 1, high)):
                    if words[place] == hashes[word]:
                        in_place += 1
                        known_in_place += information[word]
                        break
            if in_place >= few and known_in_place >= known * score:
                rows[count, 0], rows[count, 1], rows[count, 2] = document, channel, start
                count += 1
    return rows[:count].copy()
