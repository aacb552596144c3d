"""Which channels could be found if a document held no more than half of them.

An item without a match is evidence of a clean source only if a leak would have been found. Leaks are cut and edited. So
an item is `clean` only if either half of its question has as much weight as the shortest question that can be matched,
and is at least a partial match. Of such questions, copies with 12 % of their words edited are found as well (docs/log.md,
2026-11-27). All other items without a match are `whole_only`.
"""

import numpy as np
from numpy.typing import NDArray

from datakit.contamination.channels import ChannelGrams
from datakit.contamination.item_grams import segment_sums
from datakit.contamination.policy import WindowRules
from datakit.contamination.windows import word_weights
from datakit.text.ngram_index import Ints

_ROUNDING = 1e-6


def finds_halves(channels: ChannelGrams, config: WindowRules) -> NDArray[np.bool_]:
    """Return [channels] whether a document with either half of a channel's words has a match of it."""
    num_grams = np.diff(channels.bounds)
    num_words = np.where(num_grams > 0, num_grams + config.gram_words - 1, 0)
    bounds = np.concatenate(([0], np.cumsum(num_words)))
    channel = np.repeat(np.arange(len(num_grams)), num_grams)
    position = np.arange(len(channel)) - channels.bounds[channel]
    middle = ((num_words + 1) // 2)[channel]
    halves = (position + config.gram_words <= middle, position >= middle)
    return np.all([_is_found(channels, bounds, bounds[channel] + position, half, config) for half in halves], axis=0)


def _is_found(
    channels: ChannelGrams, bounds: Ints, places: Ints, is_held: NDArray[np.bool_], config: WindowRules
) -> NDArray[np.bool_]:
    """`bounds` [channels + 1]: the words of each channel; `places` [grams]: first words; `is_held` [grams]: in the half."""
    weights = np.zeros(bounds[-1])
    weights[places] = np.where(is_held, channels.weights, 0.0)
    covered = word_weights(weights, config.gram_words)[: len(weights)]
    in_run = weights >= 1
    for k in range(1, config.partial_words - config.gram_words + 1):
        in_run[:-k] &= weights[k:] >= 1
    needed = np.maximum(channels.partial_weight, config.min_channel_words)
    return (segment_sums(covered, bounds) >= needed - _ROUNDING) & (segment_sums(in_run, bounds) > 0)
