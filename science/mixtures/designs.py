"""Designs of a swarm: which weights are tried. Weights are rows that sum to 1, one column a source."""

from collections.abc import Mapping

import numpy as np
from scipy import special

CONCENTRATIONS = (0.5, 1.0, 4.0)
"""Multiples of the sources' own number: from near the corners to near the prior."""
CORNER_SHARE = 0.1


def caps(tokens: np.ndarray, target_tokens: float, max_epochs: float) -> np.ndarray:
    """The largest weight of each source that keeps it within `max_epochs` at the *target's* budget.

    Raises: ValueError if all caps together are below 1: no weights would fit.
    """
    limits = np.minimum(1.0, max_epochs * np.asarray(tokens, float) / target_tokens)
    if limits.sum() < 1:
        raise ValueError(
            f"{max_epochs:g} epochs of all sources are {max_epochs * np.sum(tokens):.3g} tokens, the target reads "
            f"{target_tokens:.3g}; allow more epochs, add sources or shorten the target"
        )
    return limits


def within(weights: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Scale weights so that no column exceeds its cap: what is cut goes to the others in their proportions."""
    inside = np.atleast_2d(weights) / np.atleast_2d(weights).sum(axis=1, keepdims=True)
    for _ in range(len(limits) + 1):
        over = inside >= limits - 1e-12
        free = np.where(over, 0.0, inside)
        left = 1 - np.where(over, limits, 0.0).sum(axis=1, keepdims=True)
        total = free.sum(axis=1, keepdims=True)
        spread = np.where(over, 0.0, limits - inside)
        grown = np.where(
            total > 1e-12, free / np.maximum(total, 1e-300), spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-300)
        )
        inside = np.where(over, limits, left * grown)
        if (inside <= limits + 1e-9).all():
            break
    return inside


def swarm(prior: np.ndarray, limits: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Weights (count, sources): Dirichlet around the prior on scrambled Sobol points, a tenth towards corners, within caps.

    Raises: ValueError for fewer designs than sources + 2, with which no surrogate is determined.
    """
    from scipy.stats import qmc  # half a second; only a swarm needs it

    sources = len(prior)
    if count < sources + 2:
        raise ValueError(f"{count} designs for {sources} sources; give at least {sources + 2}")
    points = qmc.Sobol(sources, seed=seed).random(1 << (count - 1).bit_length())[:count]
    levels = np.array(CONCENTRATIONS)[np.arange(count) % len(CONCENTRATIONS)][:, None] * sources * prior
    drawn = np.maximum(special.gammaincinv(levels, np.clip(points, 1e-6, 1 - 1e-6)), 1e-12)
    corners = np.arange(count) % round(1 / CORNER_SHARE) == 0
    favoured = np.eye(sources)[(np.arange(count) // round(1 / CORNER_SHARE)) % sources]
    drawn = np.where(corners[:, None], 0.1 * prior + 0.9 * favoured, drawn)
    return within(drawn, limits)


def split(weights: np.ndarray, column: int, parts: Mapping[str, int]) -> np.ndarray:
    """Old designs after a source was split: each part gets the source's weight by its share of tokens. Exact."""
    tokens = np.array(list(parts.values()), float)
    pieces = weights[:, [column]] * (tokens / tokens.sum())
    return np.concatenate([weights[:, :column], pieces, weights[:, column + 1 :]], axis=1)
