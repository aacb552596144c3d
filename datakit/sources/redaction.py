"""A step of a source that replaces personal data in its texts, declared. `datakit.readers.redact` has the patterns."""

from dataclasses import dataclass
from typing import Literal, get_args

type RedactedKind = Literal["email", "ip_address", "phone", "credit_card", "iban", "secret"]
KINDS: tuple[RedactedKind, ...] = get_args(RedactedKind.__value__)
PATTERNS_VERSION = "1"
"""Raise it when the patterns of `datakit.readers.redact` find other places: it is identity, and sources without a redaction
keep theirs.
"""


@dataclass(frozen=True)
class Redaction:
    """Replaces each match of these kinds by a fixed placeholder, as `<EMAIL>`; normalization counts them by kind."""

    kinds: tuple[RedactedKind, ...] = ("email", "ip_address")
    """Their order changes nothing."""

    patterns_version: str = PATTERNS_VERSION
    """Version of the patterns; the code must have the same one."""

    kind: Literal["redaction"] = "redaction"

    def __post_init__(self) -> None:
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise ValueError(f"redaction: kinds has {unknown[0]!r}; allowed: {', '.join(KINDS)}")
        if not self.kinds or len({*self.kinds}) < len(self.kinds):
            raise ValueError(f"redaction: kinds is {self.kinds}; name at least one of {', '.join(KINDS)}, and each once")

    @property
    def name(self) -> str:
        return f"redaction of {', '.join(self.kinds)}"
