"""The contamination policies of the lab beside the recommended one: assets `contamination/<policy>` to compare it with."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from datakit.contamination_named import DatatrovePolicy, DolmaPolicy, GptPolicy, MarinPolicy, NamedPolicy, TuluPolicy

CLEAN_SOURCES = ("kjv", "python_topics", "stdlib_html", "stdlib_code", "math_docstrings")
"""Sources, of those that a line has, which are known to hold no benchmark item (whatever was marked in them was looked at:
benchmarks/notes/2026-11-22-contamination-proof.md): what a policy marks in them is counted as false."""


@cache
def named_policies() -> Mapping[str, NamedPolicy]:
    """By name, which is the last part of their assets' keys."""
    policies = (
        MarinPolicy(),
        TuluPolicy(),
        GptPolicy(),
        GptPolicy(policy="gpt3-8to13gram", min_gram_words=8),
        DatatrovePolicy(),
        DolmaPolicy(),
    )
    return MappingProxyType({policy.policy: policy for policy in policies})
