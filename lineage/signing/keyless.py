"""Sigstore's keyless signatures: an identity provider vouches for the signer, and a public log keeps that it signed.

    sigstore sign provenance/attestation.json       # PyPI's sigstore: opens a browser, or takes a workflow's identity

That writes `provenance/attestation.json.sigstore.json`, a bundle with a certificate, the signature and a proof of the log.
PyPI's `sigstore`, which is optional, checks a bundle without a network, against the trusted root in that package. The tests
check bundles that others recorded. Nothing was signed live.
"""

import importlib
from dataclasses import dataclass

from lineage.strangers import naming

SUFFIX = ".sigstore.json"
MAX_BYTES = 1 << 20
"""Bundles of files are about 10 KiB."""


@dataclass(frozen=True)
class Identity:
    """Who has to have signed.

    `name` is an e-mail address or the URL of a workflow. `issuer` is the URL of the provider that vouched for it.
    """

    name: str
    issuer: str
    is_staging: bool = False
    """Whether the signature is of Sigstore's test instance (sigstage.dev)."""

    def problem(self, data: bytes, bundle: str, where: str) -> str | None:
        """Return why a bundle is no signature of this identity over some bytes; None if it is one.

        Raises: ModuleNotFoundError without `sigstore`.
        """
        models, verify, errors = (importlib.import_module(f"sigstore.{name}") for name in ("models", "verify", "errors"))
        if len(bundle) > MAX_BYTES:
            return f"{where} has {len(bundle):,} characters; at most {MAX_BYTES:,} are read"
        verifier = (verify.Verifier.staging if self.is_staging else verify.Verifier.production)(offline=True)
        wanted = verify.policy.Identity(identity=self.name, issuer=self.issuer)
        try:
            with naming(where):
                try:
                    verifier.verify_artifact(data, models.Bundle.from_json(bundle), wanted)
                except errors.VerificationError as error:
                    return f"{where} is no signature of {self.name} ({self.issuer}): {error}"
        except ValueError as error:
            return f"{where} is refused: {error}"
        return None
