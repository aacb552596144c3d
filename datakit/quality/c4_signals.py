"""Signals of what C4's published code would keep of a text: lines are counted, not cut out.

The rules are those of c4_utils.clean_page, for lines without the white space around them. Citations are cut off. A line
stays if it ends like a sentence (not with an ellipsis), has at least three words and none of more than 1,000
characters, and holds neither "javascript" nor the phrases of website policies. A text is dropped for "lorem ipsum" or a
curly bracket in lines of that form.
"""

from functools import cache

import numpy as np

from datakit.quality.line_signals import Spans, share
from datakit.text.code_points import CodePoints, having, lowered
from datakit.text.compiled import compiled

MAX_WORD_CHARS = 1_000
MIN_WORDS = 3
JAVASCRIPT, LOREM_IPSUM = 0, 1
PHRASES = (
    "javascript",
    "lorem ipsum",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
"""In lower case; from the third on they are phrases of policies."""

PREFIX_BITS = 12
PREFIX_MULTIPLIER = np.uint64(0x9E3779B1)
OPEN, CLOSE, DOT, CURLY = (np.uint32(ord(character)) for character in "[].{")


def c4_signals(texts: CodePoints, lines: Spans) -> dict[str, np.ndarray]:
    """Return float64 [texts] by name; `lines` are `datakit.quality.line_signals.lines_of` the texts."""
    tables = having(r"\s"), having(r"\d"), having(r"""[.?!"']"""), having("[.?!]"), having(r"""["')\]]"""), lowered()
    kept, sentences, lorem_ipsum, curly_bracket = _counts(
        texts.points, lines.bounds, lines.starts, lines.ends, *tables, *_citations(), *_phrases()
    )
    return {
        "c4_line_frac": share(kept, np.diff(lines.bounds)),
        "c4_sentences": sentences,
        "lorem_ipsum": np.minimum(lorem_ipsum, 1),
        "curly_bracket": np.minimum(curly_bracket, 1),
    }


@cache
def _citations() -> tuple[np.ndarray, np.ndarray]:
    """uint32: the two citations that are no number, with their brackets."""
    edit, needed = (np.array([ord(character) for character in text], np.uint32) for text in ("[edit]", "[citation needed]"))
    return edit, needed


@cache
def _phrases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return uint8 [phrases, longest], int64 [phrases] lengths, and bool [1 << PREFIX_BITS], set at the hashes of the
    first four letters.
    """
    phrases = np.zeros((len(PHRASES), max(map(len, PHRASES))), np.uint8)
    begins = np.zeros(1 << PREFIX_BITS, bool)
    for row, phrase in enumerate(PHRASES):
        phrases[row, : len(phrase)] = np.frombuffer(phrase.encode(), np.uint8)
        hashed = int.from_bytes(phrase[:4].encode()) * int(PREFIX_MULTIPLIER) & (1 << 32) - 1
        begins[hashed >> 32 - PREFIX_BITS] = True
    return phrases, np.array([len(phrase) for phrase in PHRASES]), begins


@compiled
def _counts(
    points: np.ndarray,
    bounds: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    is_space: np.ndarray,
    is_digit: np.ndarray,
    ends_line: np.ndarray,
    ends_sentence: np.ndarray,
    closes: np.ndarray,
    lower: np.ndarray,
    edit: np.ndarray,
    needed: np.ndarray,
    phrases: np.ndarray,
    lengths: np.ndarray,
    begins: np.ndarray,
) -> np.ndarray:
    """float64 [4, texts]: lines kept, their sentences, lines of their form with "lorem ipsum", and with a curly bracket."""
    counts = np.zeros((4, bounds.size - 1))
    longest = 0
    for line in range(starts.size):
        longest = max(longest, ends[line] - starts[line])
    chars = np.empty(longest, np.uint32)
    for text in range(bounds.size - 1):
        for line in range(bounds[text], bounds[text + 1]):
            if not ends_line[points[ends[line] - 1]] and points[ends[line] - 1] != CLOSE:
                continue
            size, place = 0, starts[line]  # Without its citations the line is chars[:size].
            while place < ends[line]:
                point = points[place]
                if point == OPEN:
                    after = place + 1
                    while after < ends[line] and is_digit[points[after]]:
                        after += 1
                    skipped = after + 1 - place if after < ends[line] and points[after] == CLOSE else 0
                    for citation in (edit, needed):
                        here = points[place : min(place + citation.size, ends[line])]
                        if here.size == citation.size and np.array_equal(here, citation):
                            skipped = citation.size
                    if skipped:
                        place += skipped
                        continue
                chars[size] = point
                size += 1
                place += 1
            if not size or not ends_line[chars[size - 1]]:
                continue
            if size >= 3 and chars[size - 1] == DOT and chars[size - 2] == DOT and chars[size - 3] == DOT:
                continue
            words, word_chars, longest_word, has_curly, num_sentences, may_end = 0, 0, 0, False, 0, False
            prefix, held = np.uint64(0), 0  # Four characters, and one bit for each phrase.
            for at, point in enumerate(chars[:size]):
                if is_space[point]:
                    words += word_chars > 0
                    word_chars = 0
                    num_sentences += may_end
                    may_end = False
                else:
                    word_chars += 1
                    longest_word = max(longest_word, word_chars)
                    may_end = ends_sentence[point] or (may_end and closes[point])
                has_curly |= point == CURLY
                prefix = (prefix << np.uint64(8) | np.uint64(lower[point])) & np.uint64(0xFFFFFFFF)
                if begins[np.int64((prefix * PREFIX_MULTIPLIER & np.uint64(0xFFFFFFFF)) >> np.uint64(32 - PREFIX_BITS))]:
                    for phrase in range(lengths.size):
                        same = 0
                        while same < lengths[phrase] and at - 3 + same < size and at >= 3:
                            if lower[chars[at - 3 + same]] != phrases[phrase, same]:
                                break
                            same += 1
                        if same == lengths[phrase]:
                            held |= 1 << phrase
            words += word_chars > 0
            if words < MIN_WORDS or longest_word > MAX_WORD_CHARS:
                continue
            counts[2, text] += held >> LOREM_IPSUM & 1
            if not held >> JAVASCRIPT & 1:
                counts[3, text] += has_curly
                if not held >> 2:
                    counts[0, text] += 1
                    counts[1, text] += max(1, num_sentences + may_end)
    return counts
