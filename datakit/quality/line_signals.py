"""Signals of lines and paragraphs that the rule sets of Gopher, C4 and FineWeb use.

A line is stripped of white space at both ends and counts if something is left. A paragraph is a run of lines without an
empty line between them, in a text stripped of white space at both ends.
"""

from dataclasses import dataclass

import numpy as np

from datakit.text.code_points import CodePoints, having
from datakit.text.compiled import compiled

SHORT_LINE_CHARS = 30
LONG_LINE_CHARS = 200

TERMINAL = r"\p{STerm}"
"""Ends of sentences in any script, by Unicode's property: FineWeb counts these."""

COUNTS = ("bullet", "ellipsis", "terminal", "short", "long", "asterisk", "longest")
"""Lines that begin with a bullet or a hyphen, end with an ellipsis, end like a sentence, are short, are long, begin
with an asterisk; and the characters of the longest.
"""

ASTERISK, DOT, ELLIPSIS, HYPHEN, BULLET = ord("*"), ord("."), ord("…"), ord("-"), ord("•")
HASH_BASE = np.uint64(0x9E3779B97F4A7C15)
FINALIZER = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Spans:
    """Lines or paragraphs of a batch of texts, in order."""

    bounds: np.ndarray
    """int64 [texts + 1]: text i has the spans `[bounds[i], bounds[i + 1])`."""
    starts: np.ndarray
    """int64 [spans]: first characters, as positions in the batch."""
    ends: np.ndarray
    """int64 [spans]"""


def lines_of(texts: CodePoints) -> Spans:
    """Return the lines that are not empty, without the white space around them."""
    return Spans(*_lines(texts.points, texts.bounds, texts.line_feeds, texts.line_feed_bounds, having(r"\s")))


def line_signals(texts: CodePoints, lines: Spans, num_words: np.ndarray) -> dict[str, np.ndarray]:
    """Return float64 [texts] by name: shares of lines, of paragraphs, and of characters in repeated ones."""
    arrays = texts.points, texts.bounds, texts.line_feeds, texts.line_feed_bounds
    paragraphs = Spans(*_paragraphs(*arrays, having(r"\s")))
    repeated, again = (repeats(texts, spans) for spans in (lines, paragraphs))
    counts = line_counts(texts, lines)
    num_lines = np.diff(lines.bounds)
    return {
        "duplicate_line_frac": share(repeated[0], num_lines),
        "duplicate_line_char_frac": share(repeated[1], texts.num_chars - texts.num_line_feeds),
        "duplicate_paragraph_frac": share(again[0], np.diff(paragraphs.bounds)),
        "duplicate_paragraph_char_frac": share(again[1], texts.num_chars),
        "bullet_line_frac": share(counts["bullet"], num_lines),
        "ellipsis_line_frac": share(counts["ellipsis"], num_lines),
        "terminal_line_frac": share(counts["terminal"], num_lines),
        "short_line_frac": share(counts["short"], num_lines),
        "long_lines": counts["long"],
        "newline_word_ratio": share(texts.num_line_feeds, num_words),
    }


def line_counts(texts: CodePoints, lines: Spans) -> dict[str, np.ndarray]:
    """Return float64 [texts] by `COUNTS`."""
    line_totals = _line_counts(texts.points, lines.bounds, lines.starts, lines.ends, having(TERMINAL))
    return dict(zip(COUNTS, line_totals, strict=True))


def repeats(texts: CodePoints, spans: Spans) -> np.ndarray:
    """Return float64 [2, texts]: spans that occurred before, and characters of such spans."""
    return _repeats(texts.points, spans.bounds, spans.starts, spans.ends)


def share(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return float64, with 0 for a share of nothing."""
    return np.where(total > 0, count / np.maximum(total, 1), 0.0)


@compiled
def _lines(
    points: np.ndarray, bounds: np.ndarray, line_feeds: np.ndarray, line_feed_bounds: np.ndarray, is_space: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts, ends = np.empty(line_feeds.size, np.int64), np.empty(line_feeds.size, np.int64)
    line_bounds, line = np.zeros(bounds.size, np.int64), 0
    for text in range(bounds.size - 1):
        after = bounds[text]
        for feed in line_feeds[line_feed_bounds[text] : line_feed_bounds[text + 1]]:
            start, end = after, feed
            while start < end and is_space[points[start]]:
                start += 1
            while start < end and is_space[points[end - 1]]:
                end -= 1
            if start < end:
                starts[line], ends[line] = start, end
                line += 1
            after = feed + 1
        line_bounds[text + 1] = line
    return line_bounds, starts[:line].copy(), ends[:line].copy()


@compiled
def _paragraphs(
    points: np.ndarray, bounds: np.ndarray, line_feeds: np.ndarray, line_feed_bounds: np.ndarray, is_space: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts, ends = np.empty(line_feeds.size, np.int64), np.empty(line_feeds.size, np.int64)
    paragraph_bounds, paragraph = np.zeros(bounds.size, np.int64), 0
    for text in range(bounds.size - 1):
        start, end = bounds[text], bounds[text + 1] - 1
        while start < end and is_space[points[start]]:
            start += 1
        while start < end and is_space[points[end - 1]]:
            end -= 1
        feed = line_feed_bounds[text]
        while line_feeds[feed] < start:
            feed += 1
        while line_feeds[feed] < end:  # The line feed after the text does not count.
            run = feed
            while line_feeds[run + 1] == line_feeds[run] + 1:
                run += 1
            if run > feed:
                starts[paragraph], ends[paragraph] = start, line_feeds[feed]
                paragraph += 1
                start = line_feeds[run] + 1
            feed = run + 1
        if start < end:
            starts[paragraph], ends[paragraph] = start, end
            paragraph += 1
        paragraph_bounds[text + 1] = paragraph
    return paragraph_bounds, starts[:paragraph].copy(), ends[:paragraph].copy()


@compiled
def _line_counts(
    points: np.ndarray, bounds: np.ndarray, starts: np.ndarray, ends: np.ndarray, is_terminal: np.ndarray
) -> np.ndarray:
    """Return float64 [7, texts]: `COUNTS`."""
    counts = np.zeros((7, bounds.size - 1))
    for text in range(bounds.size - 1):
        for line in range(bounds[text], bounds[text + 1]):
            first, last, chars = points[starts[line]], points[ends[line] - 1], ends[line] - starts[line]
            dots = 0
            while dots < min(3, chars) and points[ends[line] - 1 - dots] == DOT:
                dots += 1
            counts[0, text] += first in (BULLET, HYPHEN)
            counts[1, text] += dots == 3 or last == ELLIPSIS
            counts[2, text] += is_terminal[last]
            counts[3, text] += chars <= SHORT_LINE_CHARS
            counts[4, text] += chars >= LONG_LINE_CHARS
            counts[5, text] += first == ASTERISK
            counts[6, text] = max(counts[6, text], chars)
    return counts


@compiled
def _repeats(points: np.ndarray, bounds: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return float64 [2, texts]: spans that occurred before (by a 64-bit hash of their characters), and characters of
    such spans.
    """
    repeats = np.zeros((2, bounds.size - 1))
    size = 2
    for text in range(bounds.size - 1):
        while size < 2 * (bounds[text + 1] - bounds[text]):
            size *= 2
    hashes, taken_by = np.empty(size, np.uint64), np.full(size, -1, np.int64)
    for text in range(bounds.size - 1):
        bits = 1
        while 1 << bits < 2 * (bounds[text + 1] - bounds[text]):
            bits += 1
        for span in range(bounds[text], bounds[text + 1]):
            chars = points[starts[span] : ends[span]]
            hashed = np.uint64(chars.size)
            for pair in range(chars.size // 2):
                hashed = hashed * HASH_BASE + (np.uint64(chars[2 * pair]) << np.uint64(32) | np.uint64(chars[2 * pair + 1]))
            hashed = hashed * HASH_BASE + np.uint64(chars[-1])
            hashed = (hashed ^ (hashed >> np.uint64(31))) * FINALIZER
            hashed ^= hashed >> np.uint64(29)
            slot = np.int64(hashed >> np.uint64(64 - bits))
            while taken_by[slot] == text and hashes[slot] != hashed:
                slot = (slot + 1) & ((1 << bits) - 1)
            if taken_by[slot] == text:
                repeats[0, text] += 1
                repeats[1, text] += chars.size
            hashes[slot], taken_by[slot] = hashed, text
    return repeats
