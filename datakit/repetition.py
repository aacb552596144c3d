"""Repeated word n-grams of documents, as Gopher counts them (Rae et al. 2021, section A.1.1), in array code.

Two shares of a document's characters: its most frequent n-gram's, all occurrences together, and that of the words which an
n-gram covers that stood in the document before. The second counts a word once, however many n-grams cover it ("taking care not
to count characters that occur in overlapping n-grams more than once"). datatrove jumps over each repeated n-gram instead and
so leaves out the end of a longer repetition; benchmarks/quality_rules.py says how often the verdicts differ.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from datakit.word_signals import Words

TOP_SIZES = (2, 3, 4)
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
DOCUMENT_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

TOP_NAMES = tuple(f"top_{n}_gram_char_frac" for n in TOP_SIZES)
DUPLICATE_NAMES = tuple(f"duplicate_{n}_gram_char_frac" for n in DUPLICATE_SIZES)


def repetition_signals(texts: pl.Series, words: Words) -> pl.DataFrame:
    """float64 columns `TOP_NAMES` and `DUPLICATE_NAMES`, a row a text; `words` are `datakit.word_signals.words_of` them.

    An n-gram that stands twice begins with an n-1-gram that does, so each size looks only where the one before found something.
    """
    doc = words.doc
    hashes = in_document(words.hashes, doc)
    last_places = np.repeat(words.bounds[1:], np.diff(words.bounds))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(words.chars)])
    chars = np.maximum(texts.str.len_chars().to_numpy(), 1).astype(np.float64)
    columns: dict[str, np.ndarray] = {}
    grams = Grams(np.arange(doc.size), hashes)
    for n in range(2, DUPLICATE_SIZES[-1] + 1):
        grams, groups = _repeated(grams.longer(n, hashes, last_places))
        if n in TOP_SIZES:
            columns[f"top_{n}_gram_char_frac"] = _top_chars(words.bounds, doc, ends, n, groups) / chars
        elif n in DUPLICATE_SIZES:
            covered = _covered_chars(groups.later, n, ends)
            columns[f"duplicate_{n}_gram_char_frac"] = np.bincount(doc[groups.later], covered, texts.len()) / chars
    return pl.DataFrame(columns)


def in_document(hashes: np.ndarray, doc: np.ndarray) -> np.ndarray:
    """uint64: hashes that are equal only within a document."""
    return _mixed(hashes + doc.astype(np.uint64) * DOCUMENT_MULTIPLIER)


@dataclass(frozen=True)
class Grams:
    """n-grams by the place of their first word, ascending, and their hashes, which hold the document."""

    places: np.ndarray
    hashes: np.ndarray

    def longer(self, n: int, words: np.ndarray, last_places: np.ndarray) -> "Grams":
        """Those of n words that begin with these of n - 1 and end before their document's last place."""
        inside = self.places + n <= last_places[self.places]
        places = self.places[inside]
        return Grams(places, _mixed(self.hashes[inside] * MULTIPLIER + words[places + n - 1]))


@dataclass(frozen=True)
class Groups:
    """n-grams that stand more than once, a row each."""

    firsts: np.ndarray
    """Where each stands first."""
    counts: np.ndarray
    """How often it stands."""
    later: np.ndarray
    """Where any of them stands again."""


def _repeated(grams: Grams) -> tuple[Grams, Groups]:
    """The n-grams that stand more than once."""
    order, is_new = grouped(grams.hashes)
    is_last = np.append(is_new[1:], True)[: is_new.size]
    again = np.zeros(order.size, dtype=bool)
    again[order[~is_new]] = True
    stays = again.copy()
    first = np.flatnonzero(is_new & ~is_last)
    stays[order[first]] = True
    counts = np.flatnonzero(is_last & ~is_new) - first + 1
    return Grams(grams.places[stays], grams.hashes[stays]), Groups(grams.places[order[first]], counts, grams.places[again])


def grouped(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 places such that equal hashes stand together, ascending; bool: whether another hash begins there.

    The upper bits of a hash and its place are sorted as one number, which is three times as fast as an argsort; where two
    hashes differ in the lower bits alone, which is seen, the argsort is made after all.
    """
    bits = np.uint64(max(1, int(hashes.size - 1).bit_length()))
    packed = (hashes >> bits << bits) | np.arange(hashes.size, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    packed >>= bits
    ordered = hashes[order]
    is_new = _differs_from_before(ordered)
    if np.count_nonzero(is_new) != np.count_nonzero(_differs_from_before(packed)):
        order = np.argsort(hashes, kind="stable")
        is_new = _differs_from_before(hashes[order])
    return order, is_new


def _differs_from_before(values: np.ndarray) -> np.ndarray:
    differs = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _mixed(values: np.ndarray) -> np.ndarray:
    return (values ^ (values >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)


def _top_chars(bounds: np.ndarray, doc: np.ndarray, ends: np.ndarray, n: int, groups: Groups) -> np.ndarray:
    """Characters of each document's most frequent n-gram, all occurrences together; of equally frequent ones the first's."""

    def chars(first: np.ndarray) -> np.ndarray:
        return ends[first + n] - ends[first] + n - 1  # words and the spaces between them

    has_one = np.diff(bounds) >= n
    top = np.zeros(bounds.size - 1)
    top[has_one] = chars(bounds[:-1][has_one])
    if groups.firsts.size:
        order = np.argsort(groups.firsts)
        firsts = groups.firsts[order]
        key = groups.counts[order] * doc.size + (doc.size - 1 - firsts)
        begins = np.flatnonzero(_differs_from_before(doc[firsts]))
        best = np.maximum.reduceat(key, begins)
        top[doc[firsts[begins]]] = best // doc.size * chars(doc.size - 1 - best % doc.size)
    return top


def _covered_chars(starts: np.ndarray, n: int, ends: np.ndarray) -> np.ndarray:
    """int64 [n-grams]: characters of the words that n-grams at ascending places cover and the ones before them do not."""
    first = starts.copy()
    np.maximum(starts[1:], starts[:-1] + n, out=first[1:])
    return ends[starts + n] - ends[first]
