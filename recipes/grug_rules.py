"""Rules of the Grug recipe of April 2026: learning rates, beta2, eps and depth from tokens, width and batch.

Source: docs/references.md#marin-moe. The sweep of beta2 is github.com/marin-community/marin/issues/4567.
"""

import math
from collections.abc import Mapping

ADAMH_OVER_ADAM = 13 / 3
"""Learning rate of AdamH's matrices over that of its Adam groups."""
BETA1 = 0.9062
BETA2_BASE, BETA2_BASE_PUBLISHED = 0.998, 0.999
"""Our base and the recipe's. 0.998 is closer to the best of the published sweep (`beta2_error`)."""
BETA2_SWEEP: Mapping[int, Mapping[float, float]] = {
    64: {0.95: 0.9780, 0.97: 0.9759, 0.99: 0.9732, 0.995: 0.9722, 0.999: 0.9728},
    128: {0.95: 0.9743, 0.97: 0.9736, 0.99: 0.9727, 0.995: 0.9725, 0.999: 0.9734},
    256: {0.95: 0.9761, 0.97: 0.9748, 0.99: 0.9759, 0.995: 0.9760, 0.999: 0.9783},
    512: {0.95: 0.9826, 0.97: 0.9830, 0.99: 0.9831, 0.995: 0.9859, 0.999: 0.9917},
}
"""c4_en bits per byte by batch in sequences and beta2, at width 1,024 and 6e18 FLOPs."""


def adam_learning_rate(tokens: float, hidden_dim: int, batch_size: int) -> float:
    """1.63 tokens^-.2813 d^-.3678 sqrt(B), B in sequences.

    >>> round(adam_learning_rate(6.63e9, 1024, 128), 6)
    0.002488
    """
    return 1.63 * tokens**-0.2813 * hidden_dim**-0.3678 * math.sqrt(batch_size)


def adamh_learning_rate(tokens: float, hidden_dim: int, batch_size: int) -> float:
    """Learning rate of the matrices that AdamH keeps on a sphere."""
    return ADAMH_OVER_ADAM * adam_learning_rate(tokens, hidden_dim, batch_size)


def beta2(batch_size: int, base: float = BETA2_BASE) -> float:
    """clip(base^(B / 32), .95, .9999), B in sequences of 4,096 tokens."""
    return min(max(base ** (batch_size / 32), 0.95), 0.9999)


def beta2_error(base: float = BETA2_BASE) -> dict[int, float]:
    """Bits per byte above the best of the published sweep, by batch, at the rule's value; linear between the values tried."""
    errors = {}
    for batch, scores in BETA2_SWEEP.items():
        tried, value = sorted(scores), beta2(batch, base)
        low = max((each for each in tried if each <= value), default=tried[0])
        high = min((each for each in tried if each >= value), default=tried[-1])
        share = 0.0 if high == low else (value - low) / (high - low)
        errors[batch] = (1 - share) * scores[low] + share * scores[high] - min(scores.values())
    return errors


def eps(batch_size: int, tokens: float, base_batch: int = 32, base_tokens: float = 1e9) -> float:
    """1e-15 sqrt(r0 / r) with r = B / tokens: Adam's eps follows the size of gradients. r0 is of the base run, chosen here."""
    return 1e-15 * math.sqrt((base_batch / base_tokens) / (batch_size / tokens))


def num_layers(hidden_dim: int) -> int:
    """round(d / (64 + 4 log2 d - 9)).

    >>> num_layers(512), num_layers(1024), num_layers(5120)
    (6, 11, 49)
    """
    return round(hidden_dim / (64 + 4 * math.log2(hidden_dim) - 9))
