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
    chars = _LINE.str.len_chars()
    may_hold_long_word = pl.when(chars > MAX_WORD_CHARS).then(_LINE).otherwise(pl.lit(""))
    formed = (
        pl.DataFrame({"line": lines, "text": text}, schema={"line": pl.String, "text": pl.Int64})
        .lazy()
        .with_columns(_LINE.str.replace_all(CITATION, ""))
        .filter(_LINE.str.contains(END) & ~_LINE.str.ends_with("..."))
        .filter(_LINE.str.contains(MIN_WORDS))
        .filter(~may_hold_long_word.str.contains(rf"\S{{{MAX_WORD_CHARS + 1}}}"))
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
