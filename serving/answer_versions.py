"""Which weights an answer names, by the project's server or by one of another kind."""

from collections.abc import Mapping
from typing import Any

CONFIGURATION = "vllm-"
"""Begin of a fingerprint that vLLM makes of its configuration."""


def named_weights(answer: Mapping[str, Any]) -> str | None:
    """Return what an answer names its weights: the digest that our server states, else `named_version`; None for nothing."""
    stated = (answer.get("weights_version") or {}).get("digest")
    return stated or named_version(answer)


def named_version(answer: Mapping[str, Any]) -> str | None:
    """Return the version of the model that an answer names: its fingerprint, else what follows @ in the model's name.

    vLLM sends the fingerprint that `--fingerprint-mode custom --fingerprint-value VERSION` sets, and as the model's name the
    first `--served-model-name`, or that of the LoRA adapter. By default its fingerprint says how it was configured
    (`vllm-<version>-<hash>`) and stays the same when weights change, so this one is no version
    (docs.vllm.ai/en/latest/api/vllm/entrypoints/openai/fingerprint).
    """
    fingerprint = answer.get("system_fingerprint")
    if fingerprint and not fingerprint.startswith(CONFIGURATION):
        return fingerprint
    _, at, version = str(answer.get("model") or "").rpartition("@")
    return version if at and version else None
