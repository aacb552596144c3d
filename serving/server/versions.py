"""Which weights gave an answer."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WeightsVersion:
    """Weights by their bytes; None where it is unknown."""

    digest: str | None = None
    """Data version of the checkpoint, or digest of the files of a folder in Hugging Face's format."""
    step: int | None = None
    """Training step of the checkpoint."""
    fingerprint: str | None = None
    """Data versions of the weights and of the tokenizer: `system_fingerprint` of answers, `data_version` of `/v1/models`."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of an answer."""
        return {"system_fingerprint": self.fingerprint, "weights_version": self.short()}

    def short(self) -> dict[str, Any] | None:
        return None if self.digest is None else {"digest": self.digest, "step": self.step}


UNKNOWN = WeightsVersion()
