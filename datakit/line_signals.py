"""Signals of lines and paragraphs that the rule sets of Gopher, C4 and FineWeb judge by, column-wise in polars.

All lines of a batch of documents stand in one column, so a rule over lines is one vectorized pass. A line is stripped of white
space at both ends and counts when something is left.
"""

import numpy as np
import polars as pl

from datakit.repetition import MULTIPLIER, in_document
from datakit.shingles import mix

SHORT_LINE_CHARS = 30
LONG_LINE_CHARS = 200
MAX_WORD_CHARS = 1_000
MIN_WORDS = r"\S\s+\S+\s+\S"
"""Three words: C4's least in a line."""


TERMINAL = r"\p{STerm}$"
"""Ends of sentences in any script, Unicode's property: FineWeb counts these."""

C4_END = r"""[.?!"']$"""
CITATION = r"\[\d*\]|\[edit\]|\[citation needed\]"
POLICY = r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
SENTENCE_END = r"""[.?!]+["')\]]*(?:\s|$)"""
_LINE = pl.col("line")
_CHARS = pl.col("chars")


def line_signals(texts: pl.Series, num_words: pl.Series) -> pl.DataFrame:
    """float64 columns, a row a text: shares of lines, of characters in repeated lines, and what C4 would keep."""
    every = pl.LazyFrame({"line": texts.str.split("\n")}).with_row_index("doc").explode("line", empty_as_null=False)
    lines = every.with_columns(_LINE.str.strip_chars()).filter(_LINE != "").with_columns(chars=_LINE.str.len_chars())
    lines = lines.with_columns(repeated=~(_LINE.hash() ^ pl.col("doc").hash(1)).is_first_distinct()).collect().lazy()
    per_document = lines.group_by("doc", maintain_order=True).agg(
        num_lines=pl.len(),
        duplicate_lines=pl.col("repeated").sum(),
        duplicate_line_chars=_CHARS.filter("repeated").sum(),
        bullet_lines=_LINE.str.contains(r"^[•-]").sum(),
        ellipsis_lines=_LINE.str.contains(r"(?:\.\.\.|…)$").sum(),
        terminal_lines=_LINE.str.contains(TERMINAL).sum(),
        short_lines=(_CHARS <= SHORT_LINE_CHARS).sum(),
        long_lines=(_CHARS >= LONG_LINE_CHARS).sum(),
    )
    found = pl.LazyFrame({"text": texts, "words": num_words}).with_row_index("doc")
    for counted in (per_document, *_c4(lines)):
        found = found.join(counted, on="doc", how="left", maintain_order="left")
    return _shares(found).collect().hstack(_paragraphs(texts))


def _c4(lines: pl.LazyFrame) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """What C4's published code counts, in its order: the form of a line first, then words in the lines of that form."""
    may_hold_long_word = pl.when(_CHARS > MAX_WORD_CHARS).then(_LINE).otherwise(pl.lit(""))
    formed = (
        lines.filter(_LINE.str.contains(C4_END) | _LINE.str.ends_with("]"))  # no other end is changed by what comes next
        .with_columns(_LINE.str.replace_all(CITATION, ""))
        .filter(_LINE.str.contains(C4_END) & ~_LINE.str.ends_with("..."))
        .filter(_LINE.str.contains(MIN_WORDS))
        .filter(~may_hold_long_word.str.contains(rf"\S{{{MAX_WORD_CHARS + 1}}}"))
        .with_columns(lower=_LINE.str.to_lowercase())
        .with_columns(script=pl.col("lower").str.contains("javascript", literal=True))
    )
    kept = formed.filter(~pl.col("script") & ~pl.col("lower").str.contains(POLICY))
    documents = formed.group_by("doc").agg(
        lorem_ipsum=pl.col("lower").str.contains("lorem ipsum", literal=True).any(),
        curly_bracket=(~pl.col("script") & _LINE.str.contains("{", literal=True)).any(),
    )
    sentences = kept.group_by("doc").agg(c4_lines=pl.len(), c4_sentences=_LINE.str.count_matches(SENTENCE_END).clip(1).sum())
    return documents, sentences


def _shares(counts: pl.LazyFrame) -> pl.LazyFrame:
    """The counts as the signals that rules name."""
    newlines = pl.col("text").str.count_matches("\n", literal=True)
    chars = pl.col("text").str.len_chars() - newlines
    found = counts.select(
        "words", pl.exclude("doc", "text", "words").cast(pl.Float64).fill_null(0.0), newlines=newlines, chars=chars
    )
    lines = pl.col("num_lines")
    return found.select(
        duplicate_line_frac=_fraction(pl.col("duplicate_lines"), lines),
        duplicate_line_char_frac=_fraction(pl.col("duplicate_line_chars"), pl.col("chars")),
        bullet_line_frac=_fraction(pl.col("bullet_lines"), lines),
        ellipsis_line_frac=_fraction(pl.col("ellipsis_lines"), lines),
        terminal_line_frac=_fraction(pl.col("terminal_lines"), lines),
        short_line_frac=_fraction(pl.col("short_lines"), lines),
        newline_word_ratio=_fraction(pl.col("newlines"), pl.col("words")),
        c4_line_frac=_fraction(pl.col("c4_lines"), lines),
        c4_sentences="c4_sentences",
        lorem_ipsum="lorem_ipsum",
        curly_bracket="curly_bracket",
        long_lines="long_lines",
    )


def _paragraphs(texts: pl.Series) -> pl.DataFrame:
    """A paragraph is as many lines as stand together without an empty one between them; its key is made of theirs."""
    every = pl.LazyFrame({"line": texts.str.strip_chars().str.split("\n")}).with_row_index("doc")
    lines = every.explode("line", empty_as_null=False).with_row_index("place").filter(_LINE != "")
    measured = lines.select("doc", "place", key=_LINE.hash(), chars=_LINE.str.len_chars().cast(pl.Int64)).collect()
    doc, place, keys, chars = (measured[name].to_numpy() for name in ("doc", "place", "key", "chars"))
    begins = np.ones(place.size, dtype=bool)
    begins[1:] = (np.diff(place) > 1) | (doc[1:] != doc[:-1])
    first = np.flatnonzero(begins)
    counted = np.zeros((4, texts.len()))
    if first.size:
        number = np.arange(place.size) - np.repeat(first, np.diff(first, append=place.size))
        key = np.add.reduceat(mix(keys + number.astype(np.uint64) * MULTIPLIER), first)
        repeated = ~pl.Series(in_document(key, doc[first])).is_first_distinct().to_numpy()
        size = np.add.reduceat(chars, first) + np.diff(first, append=place.size) - 1
        weights = (None, repeated, size * repeated)
        counted[:3] = [np.bincount(doc[first], weight, texts.len()) for weight in weights]
    counted[3] = texts.str.len_chars().to_numpy()
    num, repeats, repeated_chars, chars_of_text = counted
    return pl.DataFrame(
        {
            "duplicate_paragraph_frac": repeats / np.maximum(num, 1),
            "duplicate_paragraph_char_frac": repeated_chars / np.maximum(chars_of_text, 1),
        }
    )


def _fraction(count: pl.Expr, total: pl.Expr) -> pl.Expr:
    return pl.when(total > 0).then(count / total).otherwise(0.0)
