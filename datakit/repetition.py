"""Repeated word n-grams of documents, as Gopher counts them (Rae et al. 2021, section A.1.1), in array code.

Two shares of a document's characters: its most frequent n-gram's, all occurrences together, and that of the words which an
n-gram covers that stood in the document before. The second counts a word once, however many n-grams cover it ("taking care not
to count characters that occur in overlapping n-grams more than once"). datatrove jumps over each repeated n-gram instead and
so leaves out the end of a longer repetition; benchmarks/quality_rules.py says how often the verdicts differ.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

TOP_SIZES = (2, 3, 4)
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
DOCUMENT_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

TOP_NAMES = tuple(f"top_{n}_gram_char_frac" for n in TOP_SIZES)
DUPLICATE_NAMES = tuple(f"duplicate_{n}_gram_char_frac" for n in DUPLICATE_SIZES)


def repetition_signals(texts: pl.Series, words: pl.DataFrame) -> pl.DataFrame:
    """float64 columns `TOP_NAMES` and `DUPLICATE_NAMES`, a row a text; `words` are `datakit.word_signals.words_of` them.

    An n-gram that stands twice begins with an n-1-gram that does, so each size looks only where the one before found something.
    """
    doc = words["doc"].to_numpy().astype(np.int64)
    lengths = words["chars"].to_numpy().astype(np.int64)
    hashes = document_keys(words["word"], doc)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    chars = np.maximum(texts.str.len_chars().to_numpy(), 1).astype(np.float64)
    columns: dict[str, np.ndarray] = {}
    grams = Grams(np.arange(doc.size), hashes)
    for n in range(2, DUPLICATE_SIZES[-1] + 1):
        grams, firsts, counts = _repeated(grams.longer(n, hashes, doc))
        if n in TOP_SIZES:
            size = ends[np.minimum(firsts + n, doc.size)] - ends[firsts] + n - 1  # words and the spaces between them
            columns[f"top_{n}_gram_char_frac"] = _top_chars(doc, ends, n, (firsts, counts, size), texts.len()) / chars
        elif n in DUPLICATE_SIZES:
            covered = _covered(np.setdiff1d(grams.places, firsts, assume_unique=True), n, doc.size)
            columns[f"duplicate_{n}_gram_char_frac"] = np.bincount(doc, lengths * covered, minlength=texts.len()) / chars
    return pl.DataFrame(columns)


def document_keys(strings: pl.Series, doc: np.ndarray) -> np.ndarray:
    """uint64: equal for equal strings of one document, and not else (but for collisions of 64 bits). For one process only."""
    return _mixed(strings.hash().to_numpy() + doc.astype(np.uint64) * DOCUMENT_MULTIPLIER)


@dataclass(frozen=True)
class Grams:
    """n-grams by the place of their first word, ascending, and their hashes, which hold the document."""

    places: np.ndarray
    hashes: np.ndarray

    def longer(self, n: int, words: np.ndarray, doc: np.ndarray) -> "Grams":
        """Those of n words that begin with these of n - 1 and end in the same document."""
        last = np.minimum(self.places + n - 1, doc.size - 1)
        inside = (self.places + n <= doc.size) & (doc[self.places] == doc[last])
        return Grams(self.places[inside], _mixed(self.hashes[inside] * MULTIPLIER + words[last[inside]]))


def _repeated(grams: Grams) -> tuple[Grams, np.ndarray, np.ndarray]:
    """The n-grams that stand more than once; and of each of these the first place, and how often it stands."""
    order = np.argsort(grams.hashes)
    ordered = grams.hashes[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, ordered.size), bool), ordered[1:] != ordered[:-1]]))
    counts = np.diff(starts, append=ordered.size)
    stay = np.zeros(ordered.size, dtype=bool)
    stay[order[np.repeat(counts > 1, counts)]] = True
    firsts = np.minimum.reduceat(order, starts)[counts > 1] if starts.size else starts
    return Grams(grams.places[stay], grams.hashes[stay]), grams.places[firsts], counts[counts > 1]


def _mixed(values: np.ndarray) -> np.ndarray:
    return (values ^ (values >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)


def _top_chars(
    doc: np.ndarray, ends: np.ndarray, n: int, repeated: tuple[np.ndarray, np.ndarray, np.ndarray], documents: int
) -> np.ndarray:
    """Characters of each document's most frequent n-gram, all occurrences together; of equally frequent ones the first's."""
    first_word, last_word = (np.searchsorted(doc, np.arange(documents), side=side) for side in ("left", "right"))
    has_one = last_word - first_word >= n
    top = np.zeros(documents)
    top[has_one] = ends[first_word[has_one] + n] - ends[first_word[has_one]] + n - 1
    firsts, counts, size = repeated
    order = np.lexsort((firsts, -counts, doc[firsts]))
    best, where = np.unique(doc[firsts[order]], return_index=True)
    top[best] = (counts * size)[order[where]]
    return top


def _covered(starts: np.ndarray, n: int, words: int) -> np.ndarray:
    """bool [words]: whether an n-gram that begins at one of the places covers a word."""
    edges = np.zeros(words + 1, dtype=np.int64)
    edges[starts] += 1
    edges[starts + n] -= 1
    return np.cumsum(edges)[:words] > 0
