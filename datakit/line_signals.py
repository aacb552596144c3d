"""Signals of lines and paragraphs that the rule sets of Gopher, C4 and FineWeb judge by, column-wise in polars.

All lines of a batch of documents stand in one column, so a rule over lines is one vectorized pass. A line is stripped of white
space at both ends and counts when something is left.
"""

import numpy as np
import polars as pl

from datakit.repetition import document_keys

SHORT_LINE_CHARS = 30
LONG_LINE_CHARS = 200
MAX_WORD_CHARS = 1_000
MIN_WORDS_PER_LINE = 3

TERMINAL = r"\p{STerm}$"
"""Ends of sentences in any script, Unicode's property: FineWeb counts these."""

C4_END = r"""[.?!"']$"""
CITATION = r"\[\d*\]|\[edit\]|\[citation needed\]"
POLICY = r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
SENTENCE_END = r"""[.?!]+["')\]]*(?:\s|$)"""
PARAGRAPH = r"[^\n]+(?:\n[^\n]+)*"
"""Lines up to an empty one: what splitting at two or more line ends gives."""

_LINE = pl.col("line")
_CHARS = pl.col("chars")


def line_signals(texts: pl.Series, words: pl.DataFrame) -> pl.DataFrame:
    """float64 columns, a row a text: shares of lines, of characters in repeated lines, and what C4 would keep."""
    every = pl.DataFrame({"line": texts.str.split("\n")}).with_row_index("doc").explode("line", empty_as_null=False)
    lines = every.with_columns(_LINE.str.strip_chars()).filter(_LINE != "").with_columns(chars=_LINE.str.len_chars())
    lines = lines.with_columns(repeated=~pl.Series(document_keys(lines["line"], lines["doc"].to_numpy())).is_first_distinct())
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
    found = pl.DataFrame({"doc": pl.arange(texts.len(), eager=True, dtype=pl.UInt32)})
    for counted in (per_document, _c4(lines)):
        found = found.join(counted, on="doc", how="left", maintain_order="left")
    counts = found.select(pl.exclude("doc").cast(pl.Float64).fill_null(0.0))
    return _shares(counts, texts, words).hstack(_paragraphs(texts))


def _c4(lines: pl.DataFrame) -> pl.DataFrame:
    """What C4's published code counts, in its order: the form of a line first, then words in the lines of that form."""
    may_hold_long_word = pl.when(_CHARS > MAX_WORD_CHARS).then(_LINE).otherwise(pl.lit(""))
    formed = (
        lines.with_columns(_LINE.str.replace_all(CITATION, ""))
        .filter(_LINE.str.contains(C4_END) & ~_LINE.str.ends_with("..."))
        .filter(_LINE.str.count_matches(r"\S+") >= MIN_WORDS_PER_LINE)
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
    return documents.join(sentences, on="doc", how="left")


def _shares(counts: pl.DataFrame, texts: pl.Series, words: pl.DataFrame) -> pl.DataFrame:
    """The counts as the signals that rules name."""
    lines = pl.col("num_lines")
    newlines = texts.str.split("\n").list.len().cast(pl.Float64) - 1.0
    num_words = np.bincount(words["doc"].to_numpy(), minlength=texts.len())
    chars = texts.str.len_chars() - newlines
    return counts.with_columns(chars=chars, newlines=newlines, words=num_words).select(
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
    paragraphs = (
        pl.DataFrame({"paragraph": texts.str.strip_chars().str.extract_all(PARAGRAPH)})
        .with_row_index("doc")
        .explode("paragraph", empty_as_null=False)
    )
    keys = document_keys(paragraphs["paragraph"], paragraphs["doc"].to_numpy())
    paragraphs = paragraphs.with_columns(repeated=~pl.Series(keys).is_first_distinct())
    counted = paragraphs.group_by("doc").agg(
        num=pl.len(), repeated=pl.col("repeated").sum(), chars=pl.col("paragraph").str.len_chars().filter("repeated").sum()
    )
    every = pl.DataFrame({"doc": pl.arange(texts.len(), eager=True, dtype=pl.UInt32), "all": texts.str.len_chars()})
    found = every.join(counted, on="doc", how="left", maintain_order="left").fill_null(0)
    return found.select(
        duplicate_paragraph_frac=_fraction(pl.col("repeated"), pl.col("num")),
        duplicate_paragraph_char_frac=_fraction(pl.col("chars"), pl.col("all")),
    )


def _fraction(count: pl.Expr, total: pl.Expr) -> pl.Expr:
    return pl.when(total > 0).then(count / total).otherwise(0.0)
