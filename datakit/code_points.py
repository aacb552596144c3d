"""Texts as arrays of code points, which loops over characters are compiled for (`datakit.compiled`)."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

TABLE_SIZE = 0x110000
ASSIGNED = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE0200))
"""Where characters with properties are: planes 0 to 3 without surrogates, and plane 14's tags and variants."""


@dataclass(frozen=True)
class CodePoints:
    """A batch of texts, one after another, a line feed behind each: where a text ends, so do its last word and line."""

    text: str
    points: np.ndarray
    """uint32 [characters]"""
    bounds: np.ndarray
    """int64 [texts + 1]: text i has the characters `[bounds[i], bounds[i + 1] - 1)`; the next one is its line feed."""

    @property
    def num_chars(self) -> np.ndarray:
        """int64 [texts]"""
        return np.diff(self.bounds) - 1


def code_points(texts: pl.Series) -> CodePoints:
    """The characters of a batch of texts. Best for some 256 KiB: four bytes a character then stay near the processor."""
    text = "\n".join([*texts.to_list(), ""])
    bounds = np.zeros(texts.len() + 1, np.int64)
    np.cumsum(texts.str.len_chars().to_numpy() + 1, out=bounds[1:])
    return CodePoints(text, np.frombuffer(text.encode("utf-32-le"), np.uint32), bounds)


@cache
def having(pattern: str) -> np.ndarray:
    """bool [TABLE_SIZE]: whether a pattern of polars holds for a character, as it does wherever polars searches texts."""
    table = np.zeros(TABLE_SIZE, bool)
    for points in ASSIGNED:
        table[points.start : points.stop] = _characters(points).str.contains(pattern).to_numpy()
    return table


@cache
def _characters(points: range) -> pl.Series:
    return pl.Series([chr(point) for point in points], dtype=pl.String)
