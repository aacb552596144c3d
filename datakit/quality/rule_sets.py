"""Published quality rules as named sets: what each paper drops, with its thresholds, over signals computed by column.

A set is data: rules are bounds on signals. So a threshold can change, or a new set be declared, without touching the
signals. Words are runs without white space; the papers do not define them, and datatrove takes spaCy's tokens (with
punctuation apart).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from datakit.quality.c4_signals import c4_signals
from datakit.quality.line_signals import line_signals, lines_of
from datakit.quality.listed_words import BAD_WORDS_SHA256, listed_word_signals
from datakit.quality.repetition import DUPLICATE_NAMES, TOP_NAMES, repetition_signals
from datakit.quality.word_signals import word_signals, words_of
from datakit.sources.source import Domain
from datakit.text.code_points import CodePoints, runs_of

PROSE_DOMAINS: frozenset[Domain] = frozenset({"prose", "encyclopedia", "web", "docs"})
"""Domains that prose rules may judge: they keep 3 of 220 files of code and of documentation markup (docs/log.md)."""

SIGNALS = (
    "num_words",
    "mean_word_chars",
    "hash_word_ratio",
    "ellipsis_word_ratio",
    "alpha_word_frac",
    "stop_words",
    "duplicate_line_frac",
    "duplicate_line_char_frac",
    "duplicate_paragraph_frac",
    "duplicate_paragraph_char_frac",
    "bullet_line_frac",
    "ellipsis_line_frac",
    "terminal_line_frac",
    "short_line_frac",
    "newline_word_ratio",
    "c4_line_frac",
    "c4_sentences",
    "lorem_ipsum",
    "curly_bracket",
    "long_lines",
    "bad_words",
    *TOP_NAMES,
    *DUPLICATE_NAMES,
)


@dataclass(frozen=True)
class Rule:
    """The document is dropped if the signal is below `low` or above `high`; the bounds themselves are allowed."""

    signal: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise ValueError(f"rule on signal {self.signal!r}; allowed: {', '.join(SIGNALS)}")
        if self.low is None and self.high is None:
            raise ValueError(f"rule on signal {self.signal!r} has neither low nor high")


@dataclass(frozen=True)
class RuleSet:
    """Rules in order: the first that fails names the reason. `source`: where they were published."""

    name: str
    published: str
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"rule set name is {self.name!r}; it names a column: letters, digits and _ only")
        if not self.rules:
            raise ValueError(f"rule set {self.name} has no rules")


GOPHER_QUALITY = RuleSet(
    "gopher_quality",
    "Rae et al. 2021, arXiv:2112.11446, section A.1.1",
    (
        Rule("num_words", low=50, high=100_000),
        Rule("mean_word_chars", low=3, high=10),
        Rule("hash_word_ratio", high=0.1),
        Rule("ellipsis_word_ratio", high=0.1),
        Rule("bullet_line_frac", high=0.9),
        Rule("ellipsis_line_frac", high=0.3),
        Rule("alpha_word_frac", low=0.8),
        Rule("stop_words", low=2),
    ),
)
GOPHER_REPETITION = RuleSet(
    "gopher_repetition",
    "Rae et al. 2021, arXiv:2112.11446, table A1",
    (
        Rule("duplicate_paragraph_frac", high=0.30),
        Rule("duplicate_paragraph_char_frac", high=0.20),
        Rule("duplicate_line_frac", high=0.30),
        Rule("duplicate_line_char_frac", high=0.20),
        Rule("top_2_gram_char_frac", high=0.20),
        Rule("top_3_gram_char_frac", high=0.18),
        Rule("top_4_gram_char_frac", high=0.16),
        Rule("duplicate_5_gram_char_frac", high=0.15),
        Rule("duplicate_6_gram_char_frac", high=0.14),
        Rule("duplicate_7_gram_char_frac", high=0.13),
        Rule("duplicate_8_gram_char_frac", high=0.12),
        Rule("duplicate_9_gram_char_frac", high=0.11),
        Rule("duplicate_10_gram_char_frac", high=0.10),
    ),
)
C4 = RuleSet(
    "c4",
    "Raffel et al. 2020, arXiv:1910.10683, section 2.2, with the line rules of its published code; its lines are counted, "
    "not cut out, and its list of bad words is the set `c4_bad_words`",
    (Rule("lorem_ipsum", high=0), Rule("curly_bracket", high=0), Rule("c4_sentences", low=5)),
)
C4_BAD_WORDS = RuleSet(
    "c4_bad_words",
    f"Raffel et al. 2020, arXiv:1910.10683, section 2.2: no word of the list that it names, in the English of sha256 "
    f"{BAD_WORDS_SHA256[:16]} (data/word_lists)",
    (Rule("bad_words", high=0),),
)
MC4_PARAGRAPHS = RuleSet(
    "mc4_paragraphs",
    "Xue et al. 2021, arXiv:2010.11934, section 3.1: three lines of 200 characters",
    (Rule("long_lines", low=3),),
)
FINEWEB = RuleSet(
    "fineweb",
    "Penedo et al. 2024, arXiv:2406.17557, section 3.6; a short line has at most 30 characters; the ratio of lines to words is "
    "that of its published code",
    (
        Rule("terminal_line_frac", low=0.12),
        Rule("short_line_frac", high=0.67),
        Rule("duplicate_line_char_frac", high=0.01),
        Rule("newline_word_ratio", high=0.3),
    ),
)
PUBLISHED = (GOPHER_QUALITY, GOPHER_REPETITION, C4, C4_BAD_WORDS, MC4_PARAGRAPHS, FINEWEB)


def measured(texts: pl.Series) -> pl.DataFrame:
    """Return float64 columns `SIGNALS`, one row a text."""
    runs = [_run_signals(points) for points in runs_of(texts)]
    return pl.DataFrame({name: np.concatenate([signals[name] for signals in runs]) for name in SIGNALS})


def _run_signals(texts: CodePoints) -> dict[str, np.ndarray]:
    """Return signals [texts] by name."""
    words, lines = words_of(texts), lines_of(texts)
    of_words = word_signals(texts, words) | repetition_signals(texts, words) | listed_word_signals(texts)
    return of_words | line_signals(texts, lines, of_words["num_words"]) | c4_signals(texts, lines)


def verdict(rules: RuleSet) -> pl.Expr:
    """Return a column named like the set: the first rule that fails (`short_line_frac_high`), "" for a document that
    stays.
    """
    reason = pl.lit("")
    for rule in reversed(rules.rules):
        value = pl.col(rule.signal)
        if rule.high is not None:
            reason = pl.when(value > rule.high).then(pl.lit(f"{rule.signal}_high")).otherwise(reason)
        if rule.low is not None:
            reason = pl.when(value < rule.low).then(pl.lit(f"{rule.signal}_low")).otherwise(reason)
    return reason.alias(rules.name)
