"""Signals of what C4's published code would keep of a text: its lines are counted, not cut out."""

from collections.abc import Sequence

import numpy as np
import polars as pl

MAX_WORD_CHARS = 1_000
MIN_WORDS = r"\S\s+\S+\s+\S"
"""Three words: C4's least in a line."""

END = r"""[.?!"']$"""
CITATION = r"\[\d*\]|\[edit\]|\[citation needed\]"
POLICY = r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
SENTENCE_END = r"""[.?!]+["')\]]*(?:\s|$)"""
_LINE = pl.col("line")


def c4_signals(lines: Sequence[str], text: np.ndarray, num_lines: np.ndarray) -> dict[str, np.ndarray]:
    """float64 [texts] by name, in C4's order: the form of a line first, then words in the lines of that form.

    `lines` are those that may have that form (`datakit.line_signals.c4_candidates`), `text` [lines] says of which text each is,
    and `num_lines` [texts] how many lines there are in all.
    """
    sentences = (
        pl.DataFrame({"line": lines, "text": text}, schema={"line": pl.String, "text": pl.Int64})
        .lazy()
        .with_columns(_LINE.str.replace_all(CITATION, ""))
        .filter(_LINE.str.contains(END) & ~_LINE.str.ends_with("..."))
        .filter(_LINE.str.contains(MIN_WORDS))
        .collect()
    )
    formed = (
        sentences.lazy()
        .filter(~_hold_long_word(sentences["line"]))
        .with_columns(lower=_LINE.str.to_lowercase())
        .with_columns(script=pl.col("lower").str.contains("javascript", literal=True))
        .select(
            "text",
            lorem_ipsum=pl.col("lower").str.contains("lorem ipsum", literal=True),
            curly_bracket=~pl.col("script") & _LINE.str.contains("{", literal=True),
            kept=~pl.col("script") & ~pl.col("lower").str.contains(POLICY),
            sentences=_LINE.str.count_matches(SENTENCE_END).clip(1),
        )
        .collect()
    )
    kept = formed["kept"].to_numpy()

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(formed["text"].to_numpy(), values, num_lines.size).astype(np.float64)  # int64 where there is none

    return {
        "c4_line_frac": summed(kept) / np.maximum(num_lines, 1),
        "c4_sentences": summed(kept * formed["sentences"].to_numpy()),
        "lorem_ipsum": np.minimum(summed(formed["lorem_ipsum"].to_numpy()), 1),
        "curly_bracket": np.minimum(summed(formed["curly_bracket"].to_numpy()), 1),
    }


def _hold_long_word(lines: pl.Series) -> pl.Series:
    """bool: whether a line has a word of more than `MAX_WORD_CHARS`. Few are long enough to be looked at."""
    hold = lines.str.len_chars() > MAX_WORD_CHARS
    rows = hold.arg_true()
    lengths = lines[rows].str.extract_all(r"\S+").list.eval(pl.element().str.len_chars())
    return hold.scatter(rows, lengths.list.max().fill_null(0) > MAX_WORD_CHARS)
