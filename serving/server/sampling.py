"""Choose the next token from log-probabilities."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

COLDEST = 1e-5
"""Lower temperatures count as 0 (vLLM's bound too), because the division would overflow."""


@dataclass(frozen=True)
class Sampling:
    """Temperature 0 is greedy. `top_p` keeps the smallest set of likeliest tokens with at least that mass."""

    temperature: float = 1.0
    top_p: float = 1.0


def next_token(log_probs: Float[np.ndarray, " V"], sampling: Sampling, rng: np.random.Generator) -> int:
    """Choose a token. Greedy takes the lowest id of equally likely tokens; otherwise one number is drawn from `rng`.

    Source: nucleus sampling, Holtzman et al. 2019; temperature comes first, as in vLLM and transformers.
    """
    if sampling.temperature < COLDEST:
        return int(np.argmax(log_probs))
    tempered = log_probs.astype(np.float64) / sampling.temperature
    weights = np.exp(tempered - tempered.max())
    order = np.argsort(-weights, kind="stable") if sampling.top_p < 1 else np.arange(len(weights))
    mass = np.cumsum(weights[order])
    kept = min(int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1, len(order)) if sampling.top_p < 1 else len(order)
    drawn = int(np.searchsorted(mass[:kept], rng.random() * mass[kept - 1], side="right"))
    return int(order[min(drawn, kept - 1)])


def likeliest(log_probs: Float[np.ndarray, " V"], count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens with their log-probabilities, likeliest first; ties by lowest id."""
    count = min(count, len(log_probs))
    if count == 0:
        return []
    edge = np.partition(log_probs, -count)[-count]
    candidates = np.flatnonzero(log_probs >= edge)
    best = candidates[np.lexsort((candidates, -log_probs[candidates]))][:count]
    return [(int(token), float(log_probs[token])) for token in best]
