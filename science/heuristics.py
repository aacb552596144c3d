"""Published rules for learning rate, batch, beta2, depth and size, each a function with its source.

Batches are in sequences of 4,096 tokens, widths in units of the residual stream, compute in training FLOPs. The rules of MoE
runs are those of marin-community/marin#4447; the dense ones are of the isoflop sweeps before it.
"""

import math

LEAST_MOE_BATCH = 32
STEPS_EXPONENT = 16
MOST_RATE = 0.01


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
    """Adam's rate; AdamH's is 13/3 of it."""
    return 1.63 * tokens**-0.2813 * width**-0.3678 * math.sqrt(batch)


def moe_beta2(batch: int) -> float:
    """.999^(B / 32), within .95 and .9999."""
    return min(max(0.999 ** (batch / 32), 0.95), 0.9999)


def moe_batch(tokens: float, seq_len: int = 4096) -> int:
    """The power of two that gives at most 2^14 steps, at least 32."""
    return max(LEAST_MOE_BATCH, _power_of_two(tokens / (2**14 * seq_len)))


def layers(width: int) -> int:
    """Depth by width, dense and MoE: d / (64 + 4 log2 d - 9).

    The published table of v16 contradicts the published rule: 10, 11, 14, 18 layers at d768, d1024, d1536 and d2048, where the
    rule gives 8, 11, 16 and 21; and 48 at d5120, where it gives 49.
    """
    return round(width / (64 + 4 * math.log2(width) - 9))


def critical_batch(compute: float) -> float:
    """1.87e-5 C^.388, the first of two fits of #4432. The second, 7.46e-3 C^.257, is 2.6 times smaller at 1e23 FLOPs."""
    return 1.87e-5 * compute**0.388


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(math.log2(max(least, 1.0))))
