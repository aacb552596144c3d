"""The published contamination policies that the lab keeps beside the recommended one: assets `contamination/<policy>`."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.tulu import TuluPolicy

type PublishedPolicy = GptPolicy | TuluPolicy
type DeclaredPolicy = ContaminationConfig | PublishedPolicy
"""The configs of the stages `datakit.contamination_index` and `datakit.contamination`."""
CLEAN_SOURCES = ("kjv", "python_topics", "stdlib_html", "stdlib_code", "math_docstrings")
"""Sources that hold no benchmark item: a person read every mark in them
(benchmarks/notes/2026-11-22-contamination-proof.md). A policy's marks in these sources count as false."""


@cache
def published_policies() -> Mapping[str, PublishedPolicy]:
    """The policies by name, which is the last part of their assets' keys."""
    policies = (TuluPolicy(), GptPolicy())
    return MappingProxyType({policy.policy: policy for policy in policies})
