"""Templates of a corpus: phrases of items that are in too many documents of a source to be evidence of a leak.

How many items share a gram is known when the index is made (`common_items`). How many documents share it is known when
all have been read: every shard counts its own documents, the counts are added, and channels with grams in more than
`document_limit` documents are judged again, without these grams, in the documents that matched them. Sums do not depend
on order, so neither does the verdict.

A channel that consists almost only of such grams cannot be matched in this source (its item is `unknown`), unless it
has `long_run_words` or more: so many words in a row are an item that leaked many times, not a template.
"""

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.contamination.channels import ChannelGrams, ItemIndex
from datakit.contamination.policy import WindowRules
from datakit.contamination.windows import word_weights
from datakit.text.ngram_index import is_member


def without_templates(index: ItemIndex, common: pl.DataFrame, config: WindowRules) -> ItemIndex:
    """Return the index in which the grams of `common` (COUNT_SCHEMA) and the words under them weigh nothing."""
    exact, masked = (_is_common(channels, common, kind) for channels, kind in ((index.exact, False), (index.masked, True)))
    aligned = index.aligned
    is_template = _words_under(index.exact, exact, aligned.bounds, config.gram_words)
    information = np.where(is_template, 0.0, aligned.information)
    lengths = np.diff(aligned.bounds)
    own_words = np.diff(np.concatenate(([0], np.cumsum(~is_template)))[aligned.bounds])
    may_align = (own_words >= config.min_channel_words) | (own_words == lengths)
    return replace(
        index,
        exact=_lighter(index.exact, exact, config),
        masked=_lighter(index.masked, masked, config),
        aligned=replace(
            aligned,
            information=information,
            needed=np.where(may_align, aligned.needed, np.inf),
            partial=np.where(may_align, aligned.partial, np.inf),
            answered=np.where(may_align, aligned.answered, np.inf),
            seeds=aligned.seeds.only(may_align[aligned.seeds.channels]),
            answered_seeds=aligned.answered_seeds.only(may_align[aligned.answered_seeds.channels]),
        ),
    )


def affected_channels(index: ItemIndex, common: pl.DataFrame) -> NDArray[np.int64]:
    """Return the channels with a gram that belongs to a template."""
    templates = []
    for grams, is_masked in ((index.exact, False), (index.masked, True)):
        templates.append(_channel_of_gram(grams)[_is_common(grams, common, is_masked) & (grams.weights > 0)])
    return np.unique(np.concatenate(templates))


def _is_common(channels: ChannelGrams, common: pl.DataFrame, is_masked: bool) -> NDArray[np.bool_]:
    """Return which grams of the channels, flat, are in `common`."""
    return is_member(channels.hashes, common.filter(is_masked=is_masked)["gram"].to_numpy())


def _lighter(channels: ChannelGrams, is_common: NDArray[np.bool_], config: WindowRules) -> ChannelGrams:
    n, index = config.gram_words, channels.index
    channel = _channel_of_gram(channels)
    weights = np.where(is_common, 0.0, channels.weights)
    totals = channels.total_weight.copy()
    for at in np.unique(channel[weights != channels.weights]).tolist():
        totals[at] = word_weights(weights[channels.of(at)], n).sum().round(6)
    leaked_often = (totals < config.min_channel_words) & (channels.total_weight >= config.long_run_words)
    weights = np.where(leaked_often[channel], channels.weights, weights)
    totals = np.where(leaked_often, channels.total_weight, totals)
    matchable = channels.is_matchable() & (totals >= config.min_channel_words)
    needed = np.where(matchable, config.needed_coverage(totals) * totals, np.inf)
    is_kept = matchable[index.channels] & (weights[channels.bounds[index.channels] + index.positions] > 0)
    return ChannelGrams(
        hashes=channels.hashes,
        weights=weights,
        bounds=channels.bounds,
        total_weight=totals,
        needed_weight=needed,
        partial_weight=np.where(matchable, config.partial_of(totals, needed), np.inf),
        index=index.only(is_kept),
    )


def _channel_of_gram(channels: ChannelGrams) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(channels.total_weight)), np.diff(channels.bounds))


def _words_under(
    channels: ChannelGrams, is_common: NDArray[np.bool_], word_bounds: NDArray[np.int64], n: int
) -> NDArray[np.bool_]:
    """Return which words of the channels, flat, lie under one of the grams."""
    channel = _channel_of_gram(channels)[is_common]
    first = word_bounds[channel] + np.flatnonzero(is_common) - channels.bounds[channel]
    under = np.zeros(int(word_bounds[-1]), np.bool_)
    for k in range(n):
        under[first + k] = True
    return under
