"""Published rules for learning rate, batch, beta2, eps, depth and size, each a function with its source.

Batches are in sequences of 4,096 tokens, widths in units of the residual stream, compute in training FLOPs. Rules of dense
runs are those of Marin's isoflop sweeps before v16. Rules of runs with experts are those of the Grug recipe of April 2026, v16
(marin-community/marin#4447, docs/references.md#marin-moe). `beta2_error` has why our base of beta2 is not the recipe's.
"""

import math

from science.published import BETA_SWEEPS, BetaSweep

STEPS_EXPONENT = 16
MOST_RATE = 0.01
LEAST_MOE_BATCH = 32
ADAMH_OVER_ADAM = 13 / 3
"""Learning rate of AdamH's matrices over that of its Adam groups."""
MOE_BETA1 = 0.9062
MOE_BETA2_BASE, MOE_BETA2_BASE_PUBLISHED = 0.998, 0.999
"""Our base and the recipe's. marin-community/marin#4567 swept beta2 after the recipe was frozen, and proposes .998."""


def dense_learning_rate(batch: int, width: int) -> float:
    """Adam's rate of the dense sweeps: .33 sqrt(B) / d."""
    return 0.33 * math.sqrt(batch) / width


def dense_beta2(batch: int) -> float:
    """.98^(B / 128): the half-life in tokens stays the same."""
    return 0.98 ** (batch / 128)


def dense_batch(tokens: float, width: int, seq_len: int = 4096) -> int:
    """The power of two that gives at most 2^16 steps, halved while the learning rate is above .01."""
    batch = _power_of_two(tokens / (2**STEPS_EXPONENT * seq_len))
    while batch > 1 and dense_learning_rate(batch, width) > MOST_RATE:
        batch //= 2
    return batch


def moe_learning_rate(tokens: float, width: int, batch: int) -> float:
    """Adam's rate: 1.63 tokens^-.2813 d^-.3678 sqrt(B).

    >>> round(moe_learning_rate(6.63e9, 1024, 128), 6)
    0.002488
    """
    return 1.63 * tokens**-0.2813 * width**-0.3678 * math.sqrt(batch)


def moe_adamh_learning_rate(tokens: float, width: int, batch: int) -> float:
    """Learning rate of the matrices that AdamH keeps on a sphere: 13/3 of Adam's."""
    return ADAMH_OVER_ADAM * moe_learning_rate(tokens, width, batch)


def moe_beta2(batch: int, base: float = MOE_BETA2_BASE) -> float:
    """base^(B / 32), within .95 and .9999. The recipe's own base is `MOE_BETA2_BASE_PUBLISHED`."""
    return min(max(base ** (batch / 32), 0.95), 0.9999)


def beta2_error(base: float = MOE_BETA2_BASE, sweep: BetaSweep = BETA_SWEEPS[0]) -> dict[int, float]:
    """Bits per byte above the best of a published sweep, by batch, at the rule's value; linear between the values tried.

    On the sweep at 6e18 FLOPs base .998 is 1.2e-4 to 7.8e-4 above the best, base .999 2.3e-4 to 1.1e-3. So .998 is the default.
    """
    errors = {}
    for batch, row in sweep.rows.items():
        scores, value = dict(zip(sweep.beta2, row, strict=True)), moe_beta2(batch, base)
        low = max((each for each in sweep.beta2 if each <= value), default=sweep.beta2[0])
        high = min((each for each in sweep.beta2 if each >= value), default=sweep.beta2[-1])
        share = 0.0 if high == low else (value - low) / (high - low)
        errors[batch] = (1 - share) * scores[low] + share * scores[high] - min(row)
    return errors


def moe_eps(batch: int, tokens: float, base_batch: int = 32, base_tokens: float = 1e9) -> float:
    """1e-15 sqrt(r0 / r) with r = B / tokens: Adam's eps follows the size of gradients. r0 is of the base run, chosen here."""
    return 1e-15 * math.sqrt((base_batch / base_tokens) / (batch / tokens))


def moe_batch(tokens: float, seq_len: int = 4096) -> int:
    """The power of two that gives at most 2^14 steps, at least 32."""
    return max(LEAST_MOE_BATCH, _power_of_two(tokens / (2**14 * seq_len)))


def layers(width: int) -> int:
    """Depth by width, dense and MoE: d / (64 + 4 log2 d - 9).

    The published table of v16 contradicts the published rule: 10, 11, 14, 18 layers at d768, d1024, d1536 and d2048, where the
    rule gives 8, 11, 16 and 21; and 48 at d5120, where it gives 49.

    >>> layers(512), layers(1024), layers(5120)
    (6, 11, 49)
    """
    return round(width / (64 + 4 * math.log2(width) - 9))


def critical_batch(compute: float) -> float:
    """1.87e-5 C^.388, the first of two fits of #4432. The second, 7.46e-3 C^.257, is 2.6 times smaller at 1e23 FLOPs."""
    return 1.87e-5 * compute**0.388


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(math.log2(max(least, 1.0))))
