"""The bodies of workers' messages to a broker, and the keys that distinguish clients' requests."""

import hashlib
import json
import uuid
from typing import Any

from pydantic import Field

from serving.forms import Strict
from serving.refusals import RequestError

NAMED = "named "
"""Start of the key of a request that the client named."""
MOST_LEASES = 256
MOST_MODELS = 256
MOST_ANSWER_BYTES = 256 << 20
"""Answers with log-probabilities are long: about 50 MB for 256 prompts of 2,048 tokens with one for each token."""


class LeaseForm(Strict):
    """`POST /broker/lease`."""

    worker: str = Field(min_length=1)
    models: dict[str, str | None] = Field(default_factory=dict, max_length=MOST_MODELS)
    """Names of the models that the worker serves, each with its data version, or null if it is unknown."""
    count: int = Field(1, ge=1, le=MOST_LEASES)
    wait: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Seconds to wait for a first request; the broker sets an upper bound."""


class LeaveForm(Strict):
    """`POST /broker/leave`."""

    worker: str = Field(min_length=1)


class RenewForm(Strict):
    """`POST /broker/renew`."""

    leases: list[str]


class GiveBackForm(Strict):
    """`POST /broker/give_back`."""

    lease: str
    used: bool = True
    """Whether the request was tried, so that the try counts."""


def read_status(text: str) -> int:
    """Parse an HTTP status. Raises: RequestError, 400."""
    if not (text.isascii() and text.isdigit() and 100 <= int(text) <= 599):
        raise RequestError(400, f"status is {text!r}; 100 to 599 are allowed", "status")
    return int(text)


def digest_of(path: str, document: dict[str, Any]) -> str:
    """Return the digest of a request; equal requests have equal digests."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(f"{path}\n{canonical}".encode(), digest_size=16).hexdigest()


def key_of(method: str, path: str, document: dict[str, Any], named: str | None = None) -> str:
    """Return the key of a request: equal for requests that must have equal answers, or that the client gave one name.

    A sampled request without a name gets a new key every time, with or without a seed. So a rollout that is requested again is
    computed again. A request that names no model gets a new key too, because the next worker may serve another model.
    """
    if named is not None:
        return NAMED + named
    generated = path in ("/v1/completions", "/v1/chat/completions") and document.get("max_tokens") != 0
    sampled = generated and document.get("temperature") != 0
    if method == "GET" or sampled or not isinstance(document.get("model"), str):
        return uuid.uuid4().hex
    return digest_of(path, document)
