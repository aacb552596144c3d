"""The numbers that evaluations give, and which way each of them is better: nothing is guessed from a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

type Better = Literal["higher", "lower", "neither"]

BETTER: Mapping[str, Better] = MappingProxyType(
    {
        "accuracy": "higher",
        "accuracy_per_byte": "higher",
        "accuracy_norm": "higher",
        "accuracy_uncond": "higher",
        "accuracy_greedy": "higher",
        "exact_match": "higher",
        "pass_at_1": "higher",
        "bits_per_byte": "lower",
        "gold_bits_per_byte": "lower",
        "micro_bits_per_byte": "lower",
        "macro_bits_per_byte": "lower",
        "batch_weighted_bits_per_byte": "lower",
        "weighted_bits_per_byte": "lower",
        "loss_nats_per_token": "lower",
        "weighted_loss_nats_per_token": "lower",
        "unparsed": "lower",
        "cut_off": "lower",
        "chance": "neither",
        "unigram_entropy_nats_per_token": "neither",
    }
)
"""Metric -> which way a model is better. `neither`: a fact about the items, the same for every model that is asked them."""


def better(metric: str) -> Better:
    """Of a metric that is not declared: neither, so it is shown without a rank."""
    return BETTER.get(metric, "neither")
