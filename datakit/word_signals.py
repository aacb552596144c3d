"""Signals of words that Gopher's quality rules judge by. Words are runs without white space; papers do not say.

The words of a batch of documents stand in one column, which the repetition signals use too.
"""

import numpy as np
import polars as pl

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's list (Rae et al. 2021, section A.1.1)."""

TEXT = pl.col("text")


def words_of(texts: pl.Series) -> pl.DataFrame:
    """`doc` (number of the text), `word` and `chars`, a row a word, in order."""
    words = pl.DataFrame({"word": texts.str.extract_all(r"\S+")}).with_row_index("doc")
    return words.explode("word", empty_as_null=False).with_columns(chars=pl.col("word").str.len_chars())


def word_signals(texts: pl.Series, words: pl.DataFrame) -> pl.DataFrame:
    """float64 columns, a row a text."""
    letters = words.select("doc", "chars", letter=pl.col("word").str.contains(r"\p{L}"))
    doc = letters["doc"].to_numpy()
    count, chars, alpha = (
        np.bincount(doc, weights, minlength=texts.len()) for weights in (None, letters["chars"], letters["letter"])
    )
    per_word = 1.0 / np.maximum(count, 1)
    stop_words = pl.sum_horizontal(TEXT.str.contains(rf"(?i)\b{word}\b") for word in STOP_WORDS)
    counted = pl.DataFrame({"text": texts}).select(
        hashes=_occurrences("#"), ellipses=_occurrences("...") + _occurrences("…"), stop_words=stop_words
    )
    return pl.DataFrame(
        {
            "num_words": count.astype(np.float64),
            "mean_word_chars": chars * per_word,
            "hash_word_ratio": counted["hashes"].to_numpy() * per_word,
            "ellipsis_word_ratio": counted["ellipses"].to_numpy() * per_word,
            "alpha_word_frac": alpha * per_word,
            "stop_words": counted["stop_words"].cast(pl.Float64),
        }
    )


def _occurrences(literal: str) -> pl.Expr:
    """How often a text holds a string. Looking for the first costs a twentieth of counting, and most texts have none."""
    holding = pl.when(TEXT.str.contains(literal, literal=True)).then(TEXT).otherwise(pl.lit(""))
    return holding.str.count_matches(literal, literal=True).cast(pl.Float64)
