"""What counts as contamination: one definition with every threshold in its config (`windows.py` applies it).

Items and documents are canonicalised; an item's *channels* (question, passage, answer, solution, code) are matched
separately. The score of a channel in a document is the share of its words that shared word-5-grams cover inside one
window of the document. Grams that many items share weigh less. Grams that many documents of the source share
(instruction templates) and grams without content (number lists, "a b a b") weigh nothing, in numerator and denominator,
so a verbatim copy always scores 1. Channels of at most `max_aligned_words` words, except answers, are also aligned with
the document word for word (`alignment.py`), because coverage loses them after two edits. A question needs fewer of its
words in place where its answer follows (`answers.py`). A match that is not verbatim needs `min_long_words`.

Tiers: `verbatim` is a coverage of at least `verbatim_coverage`; `near` is enough coverage for the channel's length,
enough words in place, or a run of `long_run_words`; `template` is enough coverage only if every number is masked;
`partial` is `partial_share` of the channel, by coverage or in place, or a run of `partial_run_words`; `fragment` is a
run of `fragment_words` and nothing more (`lineage/match_tiers.py` says what each tier means for a document and an item).

It does not find paraphrases that change more than about a quarter of the words; those need embeddings.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datakit.text.ngram_index import Floats
from lineage.match_tiers import FRAGMENT, PARTIAL, Tier


@dataclass(frozen=True)
class WindowRules:
    """All thresholds of the recommended policy. Lengths in canonical words, shares in 0..1."""

    policy: str = "window_coverage+alignment"
    gram_words: int = 5
    min_channel_words: int = 8
    """A shorter channel matches by chance. An item without a matchable channel is `unknown`, not clean. The unit is
    weight, here and in `long_channel_words`: words of templates, number lists and formulas are no basis for a match.
    """
    flag_coverage: float = 0.5
    short_flag_coverage: float = 0.9
    """Coverage that flags a channel of `min_channel_words`; falls linearly to `flag_coverage` at `long_channel_words`.
    With 0.5 at every length one shared phrase flags a short question: 170 of 249 presidential speeches, against 2, both
    of them real (2026-11-21). The price is recall of 12 % edits: MMLU falls from .90 to .78, GSM8K from .995 to .99.
    """
    long_channel_words: int = 24
    seed_words: int = 4
    """A run of this many words places a short channel on a document. 5 finds 94 % of short questions with 12 % of their
    words edited, 4 finds 98 %, 3 finds 99 % with five times the placements (2026-11-21).
    """
    max_aligned_words: int = 128
    """Longer channels keep enough 5-grams through edits. With 32, copies of questions of 33 to 48 words with 12 % of their
    words edited were missed in .032 of all cases, with 128 in .002; of 50,000 clean documents no more are marked falsely
    (2026-11-27).
    """
    max_repeats: int = 2
    """An aligned channel has `min_channel_words` different words, or at most so many fewer than words: a formula of a few
    symbols lies on any other one.
    """
    align_slack: int = 2
    short_aligned_share: float = 0.75
    """Share of words in place, and of their information, that flags a channel of `min_channel_words`; falls linearly to
    `aligned_share` at `long_channel_words`. Falling from 0.7 to 0.6 instead adds 8 of 14,920 documents, all false, for
    0.02 of recall (2026-11-21).
    """
    aligned_share: float = 0.6
    answered_share: float = 0.55
    """Share of words in place, and of their information, that flags a question whose answer follows it. The answer needs
    `aligned_share`. Questions and answers with 12 % of their words edited are found on each of 15 tasks in .92 of all cases or
    more, in .78 without this rule; 3 of 50,000 clean documents more are marked, with .4 14 more (2026-11-27).
    """
    answer_gap_words: int = 4
    """Words between a question and its answer."""
    min_answer_information: float = 2.0
    """Information of an answer that proves anything (`alignment.py`): "yes" has 3, "the" less than 1."""
    answered_seed_words: int = 3
    max_answered_words: int = 16
    """Questions of at most so many words are also placed by a run of `answered_seed_words`, if the answer follows."""
    min_long_words: int = 4
    """Different words of 3+ bytes that are no numbers and that a match shares, unless it is verbatim; one fewer where the
    answer follows. With fewer it is partial. Formulas share symbols: of 7,949 documents of sympy and mpmath 47 were marked
    falsely without this rule, 3 with it (2026-11-27).
    """
    verbatim_coverage: float = 0.9
    gap_words: int = 12
    gap_share: float = 0.125
    """Unmatched words inside a window: at most `gap_words` + `gap_share` x the channel's length in a row."""
    partial_share: float = field(default=0.4, metadata={"added_later": True})
    """Coverage, or words in place and their information, of a match that is only partial: half a question whose words
    weigh less than those of its other half.
    """
    partial_words: int = field(default=6, metadata={"added_later": True})
    """Fewer words are a phrase that any text may hold, whatever their share of the question. A partial coverage has a run
    of so many, which leaves out what more than `common_items` items share: an instruction is no part of a question.
    """
    partial_run_words: int = 20
    """A run this long is a part of a question at any share: the drawing of a geometry problem may be four fifths of it.
    """
    fragment_words: int = 13
    long_run_words: int = 40
    """A run this long is a match at any coverage: a speech shares 104 words with an MMLU passage that quotes it in
    pieces, and no window of it covers half of the passage (2026-11-21).
    """
    min_template_words: int = 12
    """Words besides numbers that a channel needs to be matched with its numbers masked."""
    common_items: int = 10
    """A gram in more items than this weighs `common_items` / items."""
    ignored_items: int = 100
    """A gram in more items than this weighs nothing."""
    common_documents: int = field(default=100, metadata={"added_later": True})
    common_document_share: float = field(default=1e-3, metadata={"added_later": True})
    """A gram in more documents of a source than both limits belongs to a template and weighs nothing there
    (`templates.py`).
    """
    min_gram_long_words: int = 2
    min_gram_distinct_words: int = 3
    """To weigh anything, a gram needs this many words of 3+ bytes that are not numbers, and this many different words."""
    num_canaries: int = 24
    min_canary_recall: float = 0.95

    def __post_init__(self) -> None:
        shares = ("flag_coverage", "short_flag_coverage", "verbatim_coverage", "gap_share", "min_canary_recall")
        for name in (*shares, "short_aligned_share", "aligned_share", "partial_share"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; a share must be in 0..1")
        if not 0 < self.flag_coverage <= self.short_flag_coverage <= self.verbatim_coverage:
            raise ValueError(
                f"flag_coverage {self.flag_coverage}, short_flag_coverage {self.short_flag_coverage}, verbatim_coverage "
                f"{self.verbatim_coverage}: they must be above 0 and not fall in this order"
            )
        if not 0 < self.aligned_share <= self.short_aligned_share:
            raise ValueError(
                f"aligned_share {self.aligned_share} must be above 0 and at most short_aligned_share {self.short_aligned_share}"
            )
        if not 1 <= self.seed_words <= self.gram_words or min(self.align_slack, self.max_aligned_words, self.max_repeats) < 0:
            raise ValueError(
                f"seed_words {self.seed_words} must be in 1..gram_words ({self.gram_words}), align_slack {self.align_slack}, "
                f"max_aligned_words {self.max_aligned_words} and max_repeats {self.max_repeats} at least 0"
            )
        if not 1 <= self.min_gram_distinct_words <= self.gram_words or self.min_gram_long_words > self.gram_words:
            raise ValueError(
                f"min_gram_distinct_words {self.min_gram_distinct_words} and min_gram_long_words "
                f"{self.min_gram_long_words} must fit in a gram of gram_words = {self.gram_words}"
            )
        if not self.gram_words <= self.min_channel_words <= self.long_channel_words:
            raise ValueError(
                f"gram_words {self.gram_words}, min_channel_words {self.min_channel_words}, long_channel_words "
                f"{self.long_channel_words}: they must not fall in this order"
            )
        if not self.gram_words <= self.fragment_words <= self.partial_run_words <= self.long_run_words:
            raise ValueError(
                f"gram_words {self.gram_words}, fragment_words {self.fragment_words}, partial_run_words "
                f"{self.partial_run_words}, long_run_words {self.long_run_words}: they must not fall in this order"
            )
        if self.partial_words < 1:
            raise ValueError(f"partial_words {self.partial_words} must be at least 1")
        if self.gap_words < 0 or self.min_template_words < self.min_channel_words:
            raise ValueError(
                f"gap_words {self.gap_words} must be at least 0, min_template_words {self.min_template_words} at least "
                f"min_channel_words"
            )
        if not 1 <= self.common_items <= self.ignored_items:
            raise ValueError(f"common_items {self.common_items} must be in 1..ignored_items ({self.ignored_items})")
        if self.common_documents < 1 or not 0 <= self.common_document_share <= 1:
            raise ValueError(
                f"common_documents {self.common_documents} must be at least 1, common_document_share "
                f"{self.common_document_share} in 0..1"
            )
        if self.num_canaries < 1:
            raise ValueError(f"num_canaries is {self.num_canaries}; a scan that proves nothing is not run, give 1 or more")

    def needed_coverage(self, total_weight: NDArray) -> Floats:
        """Return the coverage that flags channels whose words have these total weights.

        >>> WindowRules().needed_coverage(np.array([8, 16, 24, 200])).round(3).tolist()
        [0.9, 0.7, 0.5, 0.5]
        """
        ends = [self.min_channel_words, self.long_channel_words]
        return np.interp(total_weight, ends, [self.short_flag_coverage, self.flag_coverage])

    def needed_alignment(self, num_words: NDArray) -> Floats:
        """Return the alignment score that flags channels of `num_words` words.

        >>> WindowRules().needed_alignment(np.array([8, 16, 32])).round(3).tolist()
        [0.75, 0.675, 0.6]
        """
        ends = [self.min_channel_words, self.long_channel_words]
        return np.interp(num_words, ends, [self.short_aligned_share, self.aligned_share])

    def partial_of(self, words: NDArray, needed: NDArray) -> Floats:
        """Return how many words of a channel are a partial match, at most the `needed` words of a full match.

        >>> WindowRules().partial_of(np.array([8, 12, 24, 200]), np.array([7, 5, 12, 100])).round(3).tolist()
        [6.0, 5.0, 9.6, 80.0]
        """
        return np.minimum(needed, np.maximum(self.partial_share * words, self.partial_words))

    def is_partial(self, window: "Window", partial: float) -> bool:
        return window.coverage >= partial and window.longest_run >= self.partial_words

    def tier(self, window: "Window", needed: float, partial: float) -> Tier | None:
        """Return the tier of a channel's best window on its own words; `needed` and `partial` are the coverages of a
        standing and of a partial match.
        """
        if window.coverage >= needed:
            return "verbatim" if window.coverage >= self.verbatim_coverage else "near"
        if window.longest_run >= self.long_run_words:
            return "near"
        if self.is_partial(window, partial) or window.longest_run >= self.partial_run_words:
            return PARTIAL
        return FRAGMENT if window.longest_run >= self.fragment_words else None


@dataclass(frozen=True)
class Window:
    """The best place of a channel in a document; `start` and `end` count words of the document.

    `longest_run`: words of the longest stretch shared word for word, in grams that are in no template.
    """

    coverage: float
    longest_run: int
    start: int
    end: int
