"""The table of policies that the product does not keep."""

from collections.abc import Mapping

from benchmarks.rival_policies.datatrove import DatatrovePolicy
from benchmarks.rival_policies.dolma import DolmaPolicy
from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.protocol import Policy


def rival_policies() -> Mapping[str, Policy]:
    """By name."""
    policies = (
        MarinPolicy(),
        GptPolicy(policy="gpt3-8to13gram", min_gram_words=8),
        DatatrovePolicy(),
        DolmaPolicy(),
    )
    return {policy.policy: policy for policy in policies}
