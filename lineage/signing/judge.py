"""Judge the signatures of one store's files by a policy and a log: unsigned, forged, or rolled back to an older state."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lineage.artifact.manifest import MANIFEST_NAME, Manifest
from lineage.private_files import key_folder
from lineage.signing.envelope import EnvelopeError
from lineage.signing.log import VERDICTS, LogView, log_of, read_log
from lineage.signing.policy import Policy, Role, policy_from
from lineage.signing.sign import find_envelope, keyless_address
from lineage.signing.statement import text_sha256
from lineage.storage.files import Reads
from lineage.storage.root import Storage

WAIVER_STAGE = "lineage.waiver"
WILDCARDS = "*?"
SEEN_HEADS = "seen_heads.json"
"""In the key folder: the largest head of each log that this machine has seen."""


@dataclass(frozen=True)
class Unsigned:
    """Why a signature is not accepted: `unsigned` (none where one is needed), `forged`, or `rolled back`."""

    kind: Literal["unsigned", "forged", "rolled_back"]
    detail: str


@dataclass(frozen=True)
class Judge:
    """What signatures are judged by. `log`: the entries of the store's log, or None where the policy names none."""

    policy: Policy
    log: LogView | None = None

    def manifest(self, storage: Reads, manifest: Manifest, text: str) -> Unsigned | None:
        """Judge a manifest's signature; None where it may be used."""
        schema = json.loads(text)["schema"]
        if schema < self.policy.oldest_schema:
            detail = f"its manifest has schema {schema}, the policy accepts {self.policy.oldest_schema} and later"
            return Unsigned("unsigned", detail)
        role, needed = self._needs(manifest)
        return self.file(storage, f"{manifest.spec.address}/{MANIFEST_NAME}", text, role, needed)

    def verdict(self, storage: Reads) -> Callable[[str, str], str | None]:
        """Return the judge of the store's verdict records: from path and text to why one does not count, or None."""

        def refused(where: str, text: str) -> str | None:
            problem = self.file(storage, where, text, "judge")
            return None if problem is None else f"{problem.kind}: {problem.detail}"

        return refused

    def lost_verdicts(self, digests: Mapping[int, str]) -> list[str]:
        """Return logged verdict records that are gone or changed. `digests`: the sha256 of the records there, by number."""
        present = {f"{VERDICTS}/{number:08d}.json": digest for number, digest in digests.items()}
        return [] if self.log is None else self.log.lost_verdicts(present)

    def file(self, storage: Reads, where: str, text: str, role: Role, needed: int = 1) -> Unsigned | None:
        """Judge the signatures of any signed file: `needed` keys or identities that may do `role` must have signed it."""
        try:
            envelope = find_envelope(storage, where, text)
        except EnvelopeError as error:
            return Unsigned("forged", str(error))
        vouched, refused = self._keyless(storage, where, text, role)
        if envelope is None and not vouched and not refused:
            if self.policy.unsigned == "refuse":
                return Unsigned("unsigned", "it has no signature, and the policy refuses what is not signed")
        else:
            names = vouched | (set() if envelope is None else self.policy.signers(envelope, role))
            hints: list[str] = [] if envelope is None else [each.key_id for each in envelope.signatures]
            claimed = {key.public.key_id for key in self.policy.keys} & set(hints)
            if len(names) < needed and (self.policy.strangers == "refuse" or claimed):
                signed = ", ".join(self.policy.key_names(hints)) or "nobody with a key"
                accepted = f"{len(names)} of the {needed} signatures that are needed to {role} are valid"
                return Unsigned("forged", "; ".join([accepted, f"it claims to be signed by {signed}", *refused]))
        return self._against_log(where, text)

    def _keyless(self, storage: Reads, where: str, text: str, role: Role) -> tuple[set[str], list[str]]:
        """Return the identities that may do `role` and have signed this text, and why other signatures do not count."""
        vouched, refused = set(), []
        for each in self.policy.identities:
            address = keyless_address(where, text, each.name)
            data = storage.read_bytes(address) if role in each.may else None
            if data is None:
                continue
            try:
                problem = each.identity.problem(text.encode(), data.decode(errors="replace"), address)
            except ModuleNotFoundError as error:
                problem = f"{address} cannot be checked: {error}; install PyPI's sigstore"
            if problem is None:
                vouched.add(each.name)
            else:
                refused.append(problem)
        return vouched, refused

    def _needs(self, manifest: Manifest) -> tuple[Role, int]:
        if manifest.spec.stage != WAIVER_STAGE:
            return "make", 1
        return "waive", self.policy.waive_all if is_broad(manifest.spec.config) else 1

    def _against_log(self, where: str, text: str) -> Unsigned | None:
        older = self.log.older(where, text_sha256(text)) if self.log is not None else None
        return None if older is None else Unsigned("rolled_back", older)


def judge_of(storage: Storage) -> Judge:
    """Return the judge of a store by this process's policy, with the store's log where the policy names one.

    Raises: ValueError for a policy file that does not say what is allowed; LogError for a log that does not hold together.
    """
    policy = policy_from(os.environ)
    where = log_of(policy, storage)
    memory = key_folder(os.environ) / SEEN_HEADS
    return Judge(policy, None if where is None else read_log(where, policy, memory))


def is_broad(waiver: Mapping[str, object]) -> bool:
    """Whether a waiver's pattern of artifacts begins with a wildcard.

    >>> is_broad({"artifact": "*[kjv]"}), is_broad({"artifact": "corpus/*"})
    (True, False)
    """
    return str(waiver.get("artifact", "*"))[:1] in ("", *WILDCARDS)
