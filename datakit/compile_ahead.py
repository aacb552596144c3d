"""`python -m datakit.compile_ahead`: compile every loop of the data engine now, for an image or before a measurement.

Without this, each loop is compiled at its first call on a machine (`datakit.text.compiled`). All together take about
ten seconds.
"""

import polars as pl

from datakit.contamination.item_grams import index_items
from datakit.contamination.policy import WindowRules
from datakit.contamination.scan import scan
from datakit.dedup.minhash import MinHashConfig, sign_texts
from datakit.quality.rule_sets import measured
from datakit.quality.signals import quality_signals
from datakit.text.canonical_text import canonical_batch, token_spans
from datakit.text.ngram_index import bit_table, grams_in_table, hash_buffer
from datakit.text.shingles import jaccard, shingle_sets

TEXTS = (
    "The first document, of a few words: “so it is”, cafe\u0301.",
    "Another one, with 1,000 words or fewer.\n\nAnd a paragraph.",
)


def compile_ahead() -> None:
    """Call every compiled loop on two short texts, with the argument types that real work uses."""
    measured(pl.Series(TEXTS))
    quality_signals(pl.Series(TEXTS))
    sign_texts(TEXTS, MinHashConfig())
    shingles, bounds = shingle_sets(TEXTS, 2)
    jaccard(shingles[: bounds[1]], shingles[bounds[1] :])
    words = hash_buffer(*canonical_batch(TEXTS))
    grams_in_table(bit_table(words.hashes), words.hashes, 4)
    token_spans(TEXTS[1], [1])
    rows = {"item": [0, 1], "channel": ["question"] * 2, "text": list(TEXTS)}
    rules = WindowRules(min_channel_words=5, min_gram_long_words=0)
    scan(TEXTS, index_items(pl.DataFrame(rows), rules), rules)


if __name__ == "__main__":
    compile_ahead()
