"""A small mixture of experts with everything on, and its training data, shared by tests."""

from typing import Any

from tiny import MODEL

from trainer.spec.moe import ExpertsConfig, ExtrasConfig, LongShortConfig, MoeConfig, RouterConfig

EVERYTHING = ExtrasConfig(
    gated_norm_rank=4, exclude_self=True, head_gate=True, rope_share=0.5, long_short=LongShortConfig(2, 5)
)


def tiny_moe(**changes: Any) -> MoeConfig:
    """Eight experts, two a token, a shared one; two layers, 64 words, 16 positions; with the named fields changed."""
    default = {**MODEL, "experts": ExpertsConfig(8, 24, shared_dim=16), "router": RouterConfig(2)}
    return MoeConfig(**{**default, **changes})
