r"""Signals of word lists: Gopher's stop words, and the words for which C4 drops a text.

A phrase of a list is found in any case, between characters that belong to no word. C4 searches a lower-cased text with
the pattern `(?:\W|^)(?:word|...)(?:\W|$)` (c4_utils.get_badwords_filter_fn), after cutting its lines out. Here lines
are counted, not cut, so the whole text is searched. data/word_lists/README.md says whose list it is and what is known
against it.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from datakit.text.code_points import NO_ASCII, CodePoints, having, lowered
from datakit.text.compiled import compiled

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's list (Rae et al. 2021, section A.1.1)."""

BAD_WORDS_FILE = Path(__file__).resolve().parents[2] / "data" / "word_lists" / "ldnoobw_en.txt"
BAD_WORDS_SHA256 = "af851ecef1d5f212caba17339b12ac39cc2fef7d78c74876f67237644fcee8bd"

HASH_MULTIPLIER, HASH_BITS = np.uint64(0x9E3779B97F4A7C15), 13


@dataclass(frozen=True)
class Phrases:
    """Phrases in lower case as a table, by a hash of up to eight letters: the last ones of a phrase's first word."""

    characters: np.ndarray
    """uint32 [phrases, longest]"""
    lengths: np.ndarray
    """int64 [phrases]"""
    lists: np.ndarray
    """int64 [phrases]: the list of each."""
    first_at: np.ndarray
    """int16 [1 << HASH_BITS], small enough for the processor's cache: the first phrase of a hash, or -1. A sign that
    belongs to no word has hash 0.
    """
    next_at: np.ndarray
    """int16 [phrases]: the next phrase of the same hash, or -1."""

    @staticmethod
    def of(*lists: tuple[str, ...]) -> "Phrases":
        phrases = [phrase for phrases in lists for phrase in phrases]
        characters = np.zeros((len(phrases), max(map(len, phrases))), np.uint32)
        first_at, next_at = np.full(1 << HASH_BITS, -1, np.int16), np.full(len(phrases), -1, np.int16)
        for row, phrase in enumerate(phrases):
            characters[row, : len(phrase)] = [ord(character) for character in phrase]
            word = re.match(r"\w*", phrase)
            packed = int.from_bytes(word.group()[-8:].encode("ascii")) if word else 0
            slot = (packed * int(HASH_MULTIPLIER) & (1 << 64) - 1) >> 64 - HASH_BITS
            next_at[row], first_at[slot] = first_at[slot], row
        numbers = np.repeat(np.arange(len(lists)), [len(phrases) for phrases in lists])
        return Phrases(characters, np.array([len(phrase) for phrase in phrases]), numbers, first_at, next_at)


def listed_word_signals(texts: CodePoints) -> dict[str, np.ndarray]:
    """Return float64 [texts] by name: how many of the stop words a text holds, and 1 if it holds one of C4's bad words."""
    stop_words, bad_words = _held_of(texts, _listed())
    return {"stop_words": stop_words, "bad_words": np.minimum(bad_words, 1)}


def stop_words_held(texts: CodePoints) -> np.ndarray:
    """Return float64 [texts]: how many of the stop words a text holds."""
    return _held_of(texts, _stop_words())[0]


@cache
def _listed() -> Phrases:
    return Phrases.of(STOP_WORDS, bad_words())


@cache
def _stop_words() -> Phrases:
    return Phrases.of(STOP_WORDS)


def _held_of(texts: CodePoints, phrases: Phrases) -> np.ndarray:
    """Return float64 [lists, texts]."""
    table = phrases.characters, phrases.lengths, phrases.lists, phrases.first_at, phrases.next_at
    return _held(texts.points, texts.bounds, _letters(), *table)


@cache
def _letters() -> np.ndarray:
    """Return uint8 [TABLE_SIZE]: 0 for characters of no word, else `lowered`."""
    return np.where(having(r"\w"), lowered(), 0).astype(np.uint8)


@cache
def bad_words() -> tuple[str, ...]:
    """Return C4's list. Raises: ValueError for another list than was declared."""
    content = BAD_WORDS_FILE.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != BAD_WORDS_SHA256:
        raise ValueError(
            f"{BAD_WORDS_FILE} has sha256 {digest}, {BAD_WORDS_SHA256} is declared; restore it, or declare it and bump stages"
        )
    return tuple(content.decode().splitlines())


@compiled
def _held(
    points: np.ndarray,
    bounds: np.ndarray,
    letters: np.ndarray,
    characters: np.ndarray,
    lengths: np.ndarray,
    lists: np.ndarray,
    first_at: np.ndarray,
    next_at: np.ndarray,
) -> np.ndarray:
    """Return float64 [lists, texts]: how many phrases of each list a text holds.

    A phrase occurs where its first word is a whole word (or its sign beyond ASCII), the rest follows, and then
    no further character of a word.
    """
    counts = np.zeros((lists[-1] + 1, bounds.size - 1))
    last_text = np.full(lengths.size, -1)
    for text in range(bounds.size - 1):
        chars = points[bounds[text] : bounds[text + 1]]  # Plus a line feed.
        packed, start = np.uint64(0), 0
        for place, point in enumerate(chars):
            letter = letters[point]
            if letter:
                packed = packed << np.uint64(8) | np.uint64(letter)
                continue
            if start < place or point >= 128:
                phrase = np.int64(first_at[np.int64((packed * HASH_MULTIPLIER) >> np.uint64(64 - HASH_BITS))])
                packed = np.uint64(0)
                while phrase >= 0:
                    end = start + lengths[phrase]
                    if last_text[phrase] != text and end < chars.size and not letters[chars[end]]:
                        offset = 0
                        while offset < lengths[phrase]:
                            here = chars[start + offset]
                            lower = np.uint32(letters[here])
                            if characters[phrase, offset] != (here if lower == 0 or lower == NO_ASCII else lower):
                                break
                            offset += 1
                        if offset == lengths[phrase]:
                            counts[lists[phrase], text] += 1
                            last_text[phrase] = text
                    phrase = np.int64(next_at[phrase])
            start = place + 1
    return counts
