"""The metrics that all tasks of a kind share, and whether higher or lower is better. Metrics of one task are in its
record."""

from collections.abc import Mapping
from types import MappingProxyType

from evals.items.task import Better
from evals.items.tasks.registry import TASKS

BETTER: Mapping[str, Better] = MappingProxyType(
    {
        "accuracy": "higher",
        "accuracy_per_byte": "higher",
        "accuracy_norm": "higher",
        "accuracy_uncond": "higher",
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
"""Metric -> which direction is better. `neither`: a fact about the items, equal for every model."""


def better(metric: str) -> Better:
    """Whether a higher or a lower value is better; `neither` for an unknown metric, which is shown without a rank."""
    of_tasks = {each.name: each.better for task in TASKS.values() for each in task.metrics}
    return of_tasks.get(metric) or BETTER.get("pass_at_1" if metric.startswith("pass_at_") else metric, "neither")
