"""The scorer of the recommended policy (`policy.py`): the best window of a document for a channel, by shared grams."""

import numpy as np

from datakit.contamination.policy import Window, WindowRules
from datakit.text.ngram_index import Floats, Ints


def word_weights(gram_weights: Floats, n: int) -> Floats:
    """Return the weight of each word of a channel: that of the heaviest gram over it."""
    weights = np.zeros(len(gram_weights) + n - 1)
    for k in range(n):
        covered = weights[k : k + len(gram_weights)]
        np.maximum(covered, gram_weights, out=covered)
    return weights


def best_window(
    places: Ints, positions: Ints, gram_weights: Floats, needed: float, partial: float, config: WindowRules
) -> Window | None:
    """Return the window of a document that covers most of a channel, or None if no window can matter.

    `places` [hits], ascending: words of the document where a gram starts that the channel has at `positions` [hits].
    `gram_weights` [grams of the channel]. If no window reaches the coverage `needed`, return the one with the longest
    run if that is long enough to count, else the one of most coverage if that is `partial`, else the longest fragment.
    """
    n, total = config.gram_words, float(word_weights(gram_weights, config.gram_words).sum())
    gap = config.gap_words + config.gap_share * (len(gram_weights) + n - 1)
    breaks = np.flatnonzero(np.diff(places) > n + gap) + 1
    lows, highs = np.append(0, breaks), np.append(breaks, len(places))
    fragment_hits = config.fragment_words - n + 1
    can_matter = ((highs - lows) * n >= partial * total) | (highs - lows >= fragment_hits)
    windows = [
        _measure(places[low:high], positions[low:high], gram_weights, total, n)
        for low, high in zip(lows[can_matter].tolist(), highs[can_matter].tolist(), strict=True)
    ]
    best = max(windows, key=lambda w: (w.coverage, w.longest_run, -w.start), default=None)
    if best is None or best.coverage >= needed:
        return best
    longest = max(windows, key=lambda w: (w.longest_run, w.coverage, -w.start))
    if longest.longest_run < config.long_run_words and config.is_partial(best, partial):
        return best
    return longest if longest.longest_run >= config.fragment_words else None


def _measure(places: Ints, positions: Ints, gram_weights: Floats, total: float, n: int) -> Window:
    """A shared common gram adds its own weight, not that of rarer grams over the same words."""
    shared = np.zeros_like(gram_weights)
    shared[positions] = gram_weights[positions]
    coverage = float(word_weights(shared, n).sum()) / total
    rare = gram_weights[positions] >= 1
    return Window(coverage, longest_run(places[rare], positions[rare], n), int(places[0]), int(places[-1]) + n)


def longest_run(places: Ints, positions: Ints, n: int) -> int:
    """Return the words of the longest stretch of consecutive hits; 0 without any."""
    if not len(places):
        return 0
    diagonals = places - positions
    order = np.lexsort((places, diagonals))
    follows = (np.diff(diagonals[order]) == 0) & (np.diff(places[order]) == 1)
    ends = np.flatnonzero(np.append(~follows, True))
    return int(np.diff(ends, prepend=-1).max()) + n - 1
