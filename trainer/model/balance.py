"""Quantile balancing: move each expert's bias to the value that would have given it its fair share of the last step's tokens.

For a token let a be the (k + 1)-th largest of its biased values; expert e is chosen where value_e + bias_e > a. So with the
bias less the (1 - k / E) quantile over tokens of its margin value_e + bias_e - a, an expert with too many tokens keeps k / E
of them. One with too few keeps its bias, because where it came next, its margin is 0: the others are lowered to it. Source:
Grug MoE (docs/references.md#marin-moe), which takes the quantile on every device and averages; the average depends on how a
batch is split. Here tokens are counted in fixed bins, and counts add over microbatches and devices without rounding, so the
bias is the same on every mesh. Within a bin the quantile is interpolated. At an even load the quantile is 0, where the bins
are finest, however far apart the biases are.

The choice does not change if all biases of a layer move together, and noise lowers one expert after the other. So the middle
between the largest and the least bias is taken off. Before, margins were counted without the bias: those of a model of width 64
reached the last bin within 1,000 steps of 2,048 tokens, and its busiest expert took 2.6 times the mean
(benchmarks/notes/2026-11-26-moe-study.md).
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BINS = 1024
FINE, WIDEST = 8.0, 64.0
"""Bins are even in asinh(FINE * value) up to +-WIDEST: 0.002 wide near 0, 1.4 % of a value far from it."""
SPAN = math.asinh(FINE * WIDEST)


def margins(biased: Float[Array, "N E"], per_token: int) -> Float[Array, "N E"]:
    """value_e + bias_e - a for every token and expert; 0 where as many are chosen as there are experts."""
    if per_token == biased.shape[1]:
        return jnp.zeros_like(biased)
    rivals = jax.lax.top_k(biased, per_token + 1)[0][:, -1:]
    return biased - rivals


def counted(values: Float[Array, "N E"]) -> Int[Array, "E bins"]:
    """Tokens by expert and bin."""
    count = values.shape[1]
    place = jnp.arcsinh(FINE * values) / SPAN
    bins = jnp.clip(jnp.floor((place + 1) * (BINS / 2)), 0, BINS - 1).astype(jnp.int32)
    index = bins + BINS * jnp.arange(count)
    return jnp.zeros(count * BINS, jnp.int32).at[index.reshape(-1)].add(1).reshape(count, BINS)


def balancing_bias(
    bias: Float[Array, "*layers E"], counts: Int[Array, "*layers E bins"], per_token: int
) -> Float[Array, "*layers E"]:
    """The bias less the quantile of each expert's margins, around 0."""
    experts = counts.shape[-2]
    above = jnp.flip(jnp.cumsum(jnp.flip(counts, -1), -1), -1)  # tokens at or above a bin
    tokens = above[..., 0]
    wanted = tokens.astype(jnp.float32) * (per_token / experts)
    bin_ = jnp.sum((above.astype(jnp.float32) >= wanted[..., None]).astype(jnp.int32), -1) - 1
    bin_ = jnp.clip(bin_, 0, BINS - 1)
    here = jnp.take_along_axis(counts, bin_[..., None], -1)[..., 0].astype(jnp.float32)
    beyond = jnp.take_along_axis(above, bin_[..., None], -1)[..., 0].astype(jnp.float32) - here
    share = jnp.where(here > 0, (wanted - beyond) / jnp.maximum(here, 1.0), 0.5)  # of this bin's tokens, from its upper edge
    place = (bin_.astype(jnp.float32) + 1 - share) / (BINS / 2) - 1
    bias = bias - jnp.sinh(place * SPAN) / FINE
    # a mean would round differently in different programs; largest and least are exact in any order
    return bias - (bias.max(-1, keepdims=True) + bias.min(-1, keepdims=True)) / 2
