"""Match a short channel to a document word for word. This finds edited questions that n-gram coverage misses.

Two edits can leave no word-5-gram of a 12-word question, and a coverage threshold low enough for that flags single
phrases. So a short channel also matches by *alignment*. A run of `seed_words` shared words places the channel over the
document. A word of the channel is in place if the document has it there, within `align_slack` words (insertions and
deletions shift words). The score is the smaller of two shares: of the channel's words in place, and of their
information. A word's information is ln(1 + items / items with the word). A common phrase has many words and little
information, a rare name has the reverse; neither alone is a leak.

Measured on 14,920 documents against 28,951 items, 2026-11-21: benchmarks/notes/2026-11-21-planted-leaks.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datakit.contamination.answers import answer_ends
from datakit.contamination.bounds import placements_that_may_align
from datakit.contamination.policy import Window, WindowRules
from datakit.text.arrays import load_all, save_all
from datakit.text.ngram_index import Floats, GramIndex, Ints, UInt64s, grams_in_table

ALIGNED_CHANNELS = ("question", "passage", "solution", "code")
"""`answer` is not aligned: a reworded answer alone is a statement of fact that any text may make (half of the false
matches in a trial with all channels, 2026-11-21).
"""
_BLOCK_ROWS = 1 << 12
"""Placements scored at once. It keeps the working arrays in cache, and bounds them for a document of one repeated
phrase.
"""


@dataclass(frozen=True)
class AlignedChannels:
    """The words of every channel in flat arrays: channel `c` has the words `bounds[c]` to `bounds[c + 1]`.

    `hashes`, `information` and `is_long` (three bytes or more, no number) [words]; `needed` [channels] is the score
    that flags a channel, `partial` that of a part of it, both infinite if it is not aligned; `seeds` are the runs that
    place a channel. `answers` [channels]: the channel that answers a question, or -1; `answered` [channels] is the
    score that flags a question whose answer follows, infinite if its answer proves nothing. `answered_seeds` are
    shorter runs that place short questions, and count only where the answer follows.
    """

    hashes: UInt64s
    information: Floats
    is_long: NDArray[np.bool_]
    bounds: Ints
    needed: Floats
    partial: Floats
    answers: Ints
    answered: Floats
    seeds: GramIndex
    answered_seeds: GramIndex

    @cached_property
    def least(self) -> Floats:
        """Return the lowest score that matters [channels]."""
        return np.minimum(np.minimum(self.needed, self.partial), self.answered)

    def save(self, folder: Path) -> None:
        self.seeds.save(folder / "seeds")
        self.answered_seeds.save(folder / "answered_seeds")
        save_all(
            folder,
            hashes=self.hashes,
            information=self.information,
            is_long=self.is_long,
            bounds=self.bounds,
            needed=self.needed,
            partial=self.partial,
            answers=self.answers,
            answered=self.answered,
        )

    @classmethod
    def load(cls, folder: Path) -> "AlignedChannels":
        seeds, answered_seeds = (GramIndex.load(folder / name) for name in ("seeds", "answered_seeds"))
        return cls(seeds=seeds, answered_seeds=answered_seeds, **load_all(folder))


@dataclass(frozen=True)
class Placed:
    """The best place of a channel in a document: its window, whether it flags the channel, and whether the answer follows.

    The window's coverage holds the score.
    """

    window: Window
    stands: bool
    is_answered: bool


@dataclass(frozen=True)
class Placements:
    """Placements of channels over documents [placements]: the channel's first word lies on word `starts` of all
    documents' words.

    A start may lie outside the document, or be negative, if the document holds only the end of the channel. `ends`: the
    word after the answer that follows, or 0. `needed`: the score that flags the channel here; `least`: the lowest score
    that matters.
    """

    documents: Ints
    channels: Ints
    starts: Ints
    ends: Ints
    needed: Floats
    least: Floats

    def of(self, rows: slice | Ints) -> "Placements":
        whole_numbers = (column[rows] for column in (self.documents, self.channels, self.starts, self.ends))
        return Placements(*whole_numbers, needed=self.needed[rows], least=self.least[rows])


def aligned_windows(
    words: UInt64s, bounds: Ints, begins: Ints, channels: AlignedChannels, config: WindowRules
) -> Iterator[tuple[tuple[int, int], Placed]]:
    """Return ((document, channel), best placement) of every pair that alignment flags or finds in part.

    `words` and `bounds`: the words of all documents, flat; `begins`: where `seeds` may begin.
    """
    placed = _placements(words, bounds, begins, channels, config)
    scores = np.concatenate([np.empty(0), *_scores(words, bounds, placed, channels, config.align_slack)])
    chosen = np.flatnonzero(scores >= placed.least)
    placed, scores = placed.of(chosen), scores[chosen]
    stands = scores >= placed.needed
    best_first = np.lexsort((placed.starts, -scores, ~stands, placed.channels, placed.documents))
    seen: set[tuple[int, int]] = set()
    for row in best_first.tolist():
        pair = int(placed.documents[row]), int(placed.channels[row])
        if pair not in seen:
            seen.add(pair)
            start, end = int(placed.starts[row]), int(placed.ends[row])
            window = _window(words, bounds, channels, *pair, start, end, float(scores[row]))
            yield pair, Placed(window, stands=bool(stands[row]), is_answered=end > 0)


def _placements(words: UInt64s, bounds: Ints, begins: Ints, channels: AlignedChannels, config: WindowRules) -> Placements:
    """Return every place of a channel in a document, with the scores that count there."""
    short = channels.answered_seeds
    any_text = _seeded(words, bounds, begins, channels.seeds, channels, channels.least, config.align_slack)
    begins = grams_in_table(short.table, words, short.n)
    if_answered = _seeded(words, bounds, begins, short, channels, channels.answered, config.align_slack)
    rows = np.concatenate([any_text, if_answered])
    wanted = channels.answers, channels.hashes, channels.information, channels.bounds
    ends = answer_ends(words, bounds, rows, *wanted, config.answer_gap_words, config.aligned_share)
    documents, channel, starts = rows.T
    ends = np.where(np.isfinite(channels.answered[channel]), ends, 0)
    counts = np.arange(len(rows)) < len(any_text)
    needed = np.where(counts, channels.needed[channel], np.inf)
    needed = np.where(ends > 0, np.minimum(needed, channels.answered[channel]), needed)
    least = np.minimum(needed, np.where(counts, channels.partial[channel], np.inf))
    return Placements(documents, channel, starts, ends, needed, least)


def _seeded(
    words: UInt64s, bounds: Ints, begins: Ints, seeds: GramIndex, channels: AlignedChannels, least: Floats, slack: int
) -> Ints:
    """Return int64 [placements, 3], document, channel and start, that may reach the score `least` [channels]: each place
    once, however many seeds agree on it.
    """
    hits, postings = seeds.lookup_at(words, bounds, begins), (seeds.offsets, seeds.channels, seeds.positions)
    wanted = channels.hashes, channels.information, channels.bounds, least
    rows = placements_that_may_align(words, bounds, *hits, *postings, *wanted, slack)
    rows = rows[np.lexsort(rows.T[::-1])]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = np.any(np.diff(rows, axis=0) != 0, axis=1)
    return rows[is_new]


def _scores(words: UInt64s, bounds: Ints, placed: Placements, channels: AlignedChannels, slack: int) -> Iterator[Floats]:
    """Return the score of every placement, computed in blocks."""
    lengths = np.diff(channels.bounds)
    for low in range(0, len(placed.starts), _BLOCK_ROWS):
        block = placed.of(slice(low, low + _BLOCK_ROWS))
        length = lengths[block.channels]
        firsts = np.cumsum(length) - length
        offset = np.arange(length.sum()) - np.repeat(firsts, length)
        of_channel = np.repeat(channels.bounds[block.channels], length) + offset
        on_document = np.repeat(block.starts, length) + offset
        first_word, last_word = (np.repeat(bounds[block.documents + k], length) for k in (0, 1))
        wanted = channels.hashes[of_channel]
        in_place = np.zeros(len(offset), np.bool_)
        for shift in range(-slack, slack + 1):
            at = on_document + shift
            inside = (at >= first_word) & (at < last_word)
            in_place |= inside & (words[np.where(inside, at, 0)] == wanted)
        information = channels.information[of_channel]
        share = np.add.reduceat(in_place, firsts, dtype=np.int64) / length
        informed = np.add.reduceat(in_place * information, firsts) / np.add.reduceat(information, firsts)
        yield np.minimum(share, informed).round(6)


def _window(
    words: UInt64s, bounds: Ints, channels: AlignedChannels, document: int, channel: int, start: int, end: int, score: float
) -> Window:
    """Return the stretch of the document that the channel lies on, to the answer's `end` if one follows; its run is what
    both share without a shift.
    """
    text = words[bounds[document] : bounds[document + 1]]
    wanted = channels.hashes[channels.bounds[channel] : channels.bounds[channel + 1]]
    low = start - int(bounds[document])
    first, last = max(low, 0), min(low + len(wanted), len(text))
    same = text[first:last] == wanted[first - low : last - low]
    return Window(score, _longest_true(same), first, max(last, end - int(bounds[document])))


def _longest_true(values: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], values, [False])).astype(np.int8)))
    return int(np.max(edges[1::2] - edges[::2], initial=0))
