"""Texts as arrays of code points, the input of compiled loops over characters (`datakit.text.compiled`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents.parts import slices
from datakit.text.compiled import compiled

TABLE_SIZE = 0x110000
ASSIGNED = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE0200))
"""Code points that can have properties: planes 0 to 3 without surrogates, and the tags and variants of plane 14."""
NO_ASCII = 255
LINE_FEED = ord("\n")
RUN_CHARS = 1 << 18
"""Characters in a batch: at four bytes each they stay in the processor's cache."""


@dataclass(frozen=True)
class CodePoints:
    """A batch of texts one after another, each with a line feed after it, so that every text ends a word and a line."""

    points: np.ndarray
    """uint32 [characters]"""
    bounds: np.ndarray
    """int64 [texts + 1]: text i has the characters `[bounds[i], bounds[i + 1] - 1)`; the next one is its line feed."""
    line_feeds: np.ndarray
    """int64: positions of line feeds, the one after each text included."""
    line_feed_bounds: np.ndarray
    """int64 [texts + 1]: text i has the line feeds `[line_feed_bounds[i], line_feed_bounds[i + 1])`."""

    @property
    def num_chars(self) -> np.ndarray:
        """int64 [texts]"""
        return np.diff(self.bounds) - 1

    @property
    def num_line_feeds(self) -> np.ndarray:
        """int64 [texts]: without the added line feed."""
        return np.diff(self.line_feed_bounds) - 1


def runs_of(texts: pl.Series) -> Iterator[CodePoints]:
    """Split texts into runs of about `RUN_CHARS` characters; at least one run, even if there is no text."""
    yield from (code_points(run["text"]) for run in slices(pl.DataFrame({"text": texts}), RUN_CHARS))


def code_points(texts: pl.Series) -> CodePoints:
    """Return the characters of a batch of texts."""
    arrow = texts.to_arrow().cast(pa.large_string())
    _, offsets, data = arrow.buffers()
    bounds = np.frombuffer(offsets, np.int64)[arrow.offset : arrow.offset + len(arrow) + 1]
    return CodePoints(*_decoded(np.frombuffer(data or b"", np.uint8), bounds))


@compiled
def _decoded(data: np.ndarray, byte_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Build the fields of `CodePoints` from valid UTF-8. The first byte of a character gives its length."""
    texts = byte_bounds.size - 1
    points = np.empty(byte_bounds[-1] - byte_bounds[0] + texts, np.uint32)
    line_feeds = np.empty(points.size, np.int64)
    bounds, line_feed_bounds = np.zeros(texts + 1, np.int64), np.zeros(texts + 1, np.int64)
    size, feeds = 0, 0
    for text in range(texts):
        place, end = byte_bounds[text], byte_bounds[text + 1]
        while place < end:
            first = np.uint32(data[place])
            place += 1
            if first >= 0x80:
                more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
                first &= np.uint32(0x3F >> more)
                for byte in data[place : place + more]:
                    first = first << np.uint32(6) | np.uint32(byte & 0x3F)
                place += more
            elif first == LINE_FEED:
                line_feeds[feeds] = size
                feeds += 1
            points[size] = first
            size += 1
        points[size], line_feeds[feeds] = LINE_FEED, size
        size, feeds = size + 1, feeds + 1
        bounds[text + 1], line_feed_bounds[text + 1] = size, feeds
    return points[:size], bounds, line_feeds[:feeds].copy(), line_feed_bounds


@cache
def having(pattern: str) -> np.ndarray:
    """bool [TABLE_SIZE]: whether a polars pattern matches each character, the same as when polars searches texts."""
    table = np.zeros(TABLE_SIZE, bool)
    for points in ASSIGNED:
        table[points.start : points.stop] = _characters(points).str.contains(pattern).to_numpy()
    return table


@cache
def lowered() -> np.ndarray:
    """uint8 [TABLE_SIZE]: the ASCII letter that each character lower-cases to; `NO_ASCII` if there is none."""
    table = np.full(TABLE_SIZE, NO_ASCII, np.uint8)
    for points in ASSIGNED:
        lower = _characters(points).str.to_lowercase()
        single = lower.str.len_bytes().to_numpy() == 1
        table[points.start : points.stop][single] = np.frombuffer("".join(lower.filter(single)).encode(), np.uint8)
    return table


@cache
def _characters(points: range) -> pl.Series:
    return pl.Series([chr(point) for point in points], dtype=pl.String)
