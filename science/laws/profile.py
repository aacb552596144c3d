"""The profile of one positive parameter: where a sum of squares is lowest, and how far it may move before a test rejects it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

GRID = 400


@dataclass(frozen=True)
class Profile:
    """The best value, and the ends of the interval; None where it has no end within the range."""

    best: float
    square: float
    low: float | None
    high: float | None


def profile(squares: Callable[[np.ndarray], np.ndarray], low: float, high: float, allowed: Callable[[float], float]) -> Profile:
    """Search a range on a grid of logarithms, then again between the cells around what `allowed` of the minimum keeps."""
    start, end = low, high
    for _ in range(2):
        grid = np.geomspace(start, end, GRID)
        values = squares(grid)
        at = int(np.argmin(values))
        inside = np.flatnonzero(values <= allowed(float(values[at])))
        first, last = int(inside[0]), int(inside[-1])
        best, square = float(grid[at]), float(values[at])
        bounds = tuple(None if grid[edge] in (low, high) else float(grid[edge]) for edge in (first, last))
        start, end = float(grid[max(first - 1, 0)]), float(grid[min(last + 1, GRID - 1)])
    return Profile(best, square, *bounds)
