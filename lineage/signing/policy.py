"""The policy: whose signature counts for what, and what is refused without one. It is read from `lab.yaml`.

    keys:
      ada: {public: MCowBQYDK2VwAyEA..., may: [make, judge, waive, publish]}
      trainers: {public: ..., may: [make]}
    identities:             # Sigstore's keyless signatures (`lineage.signing.keyless`)
      eve: {name: eve@x.org, issuer: "https://github.com/login/oauth", may: [waive]}
    unsigned: refuse        # or allow
    oldest_schema: 2        # manifests of an older format are refused
    waive_all: 2            # keys and identities that must sign a waiver whose pattern begins with a wildcard
    log: gs://other-bucket/log

`make`: manifests of artifacts. `judge`: verdicts. `waive`: waivers. `publish`: exports and tree heads of the log.

Without the file, or if it names clusters alone, the local key may do everything, other signatures are not judged, and unsigned
files are allowed.
The file is part of the checkout or the image, never of the store: who may write the bucket may not write it.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from lineage.names import check_part
from lineage.private_files import key_folder
from lineage.project import lab_folder
from lineage.signing.envelope import Envelope
from lineage.signing.keyless import Identity
from lineage.signing.keys import LOCAL_KEY, SIGNING_KEY, LocalKey, PublicKey

POLICY_FILE = "lab.yaml"
CLUSTERS = "clusters"
"""Field of the same file that is no part of the policy (`resources/named_clusters.py`)."""
POLICY = "MARIN_POLICY"
"""Variable with another path of the policy."""

type Role = Literal["make", "judge", "waive", "publish"]
ROLES: tuple[Role, ...] = get_args(Role.__value__)


@dataclass(frozen=True)
class NamedKey:
    """A public key, whose it is, and what it may do."""

    name: str
    public: PublicKey
    may: frozenset[Role]

    def __post_init__(self) -> None:
        if unknown := sorted(self.may - set(ROLES)):
            raise ValueError(f"key {self.name} may {unknown[0]!r}; allowed: {', '.join(ROLES)}")


@dataclass(frozen=True)
class NamedIdentity:
    """Somebody for whom an identity provider vouches, and what that person or workflow may do. `name` is the policy's own."""

    name: str
    identity: Identity
    may: frozenset[Role]

    def __post_init__(self) -> None:
        check_part(self.name, "the name of an identity")
        if unknown := sorted(self.may - set(ROLES)):
            raise ValueError(f"identity {self.name} may {unknown[0]!r}; allowed: {', '.join(ROLES)}")


@dataclass(frozen=True)
class Policy:
    """Whose signatures count. `source` says where the policy came from; the gate prints it."""

    source: str
    keys: tuple[NamedKey, ...] = ()
    unsigned: Literal["allow", "refuse"] = "allow"
    strangers: Literal["allow", "refuse"] = "refuse"
    """What to do with a file that only keys outside the policy have signed; `allow` without a policy file."""

    oldest_schema: int = 1
    waive_all: int = 2
    log: str | None = None
    identities: tuple[NamedIdentity, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("unsigned", self.unsigned), ("strangers", self.strangers)):
            if value not in ("allow", "refuse"):
                raise ValueError(f"{self.source}: {name} is {value!r}; allowed: allow, refuse")
        for name, number in (("oldest_schema", self.oldest_schema), ("waive_all", self.waive_all)):
            if type(number) is not int or number < 1:
                raise ValueError(f"{self.source}: {name} is {number!r}; it must be a whole number of at least 1")
        ids = [key.public.key_id for key in self.keys]
        if len(set(ids)) < len(ids):
            raise ValueError(f"{self.source}: two names have the same key; each key has one name")
        if len({each.identity for each in self.identities}) < len(self.identities):
            raise ValueError(f"{self.source}: two names are of the same identity; each identity has one name")
        if both := sorted({key.name for key in self.keys} & {each.name for each in self.identities}):
            raise ValueError(f"{self.source}: {both[0]} is a key and an identity; each has a name of its own")
        if self.log is not None and not (isinstance(self.log, str) and self.log):
            raise ValueError(f"{self.source}: log is {self.log!r}; give a folder or a URL outside every store")

    def __str__(self) -> str:
        keys = ", ".join(f"{key.name} ({'/'.join(sorted(key.may))})" for key in (*self.keys, *self.identities)) or "none"
        log = self.log or "none"
        return f"policy {self.source}: keys {keys}; unsigned: {self.unsigned}; oldest schema {self.oldest_schema}; log {log}"

    def signers(self, envelope: Envelope, role: Role) -> set[str]:
        """Return the names of the keys that may do this and have signed."""
        allowed = [key for key in self.keys if role in key.may]
        ids = envelope.signers([key.public for key in allowed])
        return {key.name for key in allowed if key.public.key_id in ids}

    def key_names(self, key_ids: Collection[str]) -> list[str]:
        """Return how a report calls some keys: by name where the policy has one, else by the first digits of the id."""
        names = {key.public.key_id: key.name for key in self.keys}
        return [names.get(key_id, f"unknown key {key_id[:16]}") for key_id in key_ids]


def read_policy(path: Path) -> Policy:
    """Read a policy file. Raises: ValueError naming the file, the field, its value and what is allowed."""
    return _policy(_record(path), path)


def _record(path: Path) -> dict[str, Any]:
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds {type(record).__name__}; it must be a mapping (docs/design/provenance.md)")
    return record


def _policy(record: dict[str, Any], path: Path) -> Policy:
    allowed = {"keys", "identities", "unsigned", "oldest_schema", "waive_all", "log", CLUSTERS}
    if unknown := sorted(set(map(str, record)) - allowed):
        raise ValueError(f"{path} has the field {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}")
    stated, vouched = record.get("keys") or {}, record.get("identities") or {}
    if not isinstance(stated, dict):
        raise ValueError(f"{path}: keys is {stated!r}; it must map names to a public key and what it may do")
    if not isinstance(vouched, dict):
        raise ValueError(f"{path}: identities is {vouched!r}; it must map names to a name, an issuer and what it may do")
    keys = tuple(_named_key(str(name), value, str(path)) for name, value in stated.items())
    identities = tuple(_named_identity(str(name), value, str(path)) for name, value in vouched.items())
    rest = {name: record[name] for name in allowed - {"keys", "identities", CLUSTERS} if name in record}
    return Policy(str(path), keys, identities=identities, **rest)


def policy_from(environment: Mapping[str, str] = os.environ) -> Policy:
    """Return the policy of this process: of the file that `MARIN_POLICY` names, of `lab.yaml` in the lab, or the default.

    Raises: ValueError for a file that is named and absent, or that says what is not allowed.
    """
    named = environment.get(POLICY, "")
    path = Path(named) if named else lab_folder() / POLICY_FILE
    if path.is_file():
        record = _record(path)
        return default_policy(environment) if set(record) == {CLUSTERS} else _policy(record, path)
    if named:
        raise ValueError(f"{POLICY} is {named!r}, which is no file; unset it to judge by the default policy")
    return default_policy(environment)


def default_policy(environment: Mapping[str, str] = os.environ) -> Policy:
    """Return what holds without a policy file: the local key, if there is one, may do everything."""
    path = Path(environment.get(SIGNING_KEY) or key_folder(environment) / LOCAL_KEY)
    keys = (NamedKey("local", LocalKey.read(path).public, frozenset(ROLES)),) if path.is_file() else ()
    return Policy(f"by default (there is no {POLICY_FILE})", keys, strangers="allow", waive_all=1)


def _named_key(name: str, value: Any, where: str) -> NamedKey:
    if not isinstance(value, dict) or set(value) != {"public", "may"} or not isinstance(value["may"], list):
        raise ValueError(f"{where}: key {name} is {value!r}; it must have `public` (./marin key prints it) and a list `may`")
    try:
        return NamedKey(name, PublicKey.from_text(str(value["public"])), frozenset(value["may"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: key {name}: {error}") from error


def _named_identity(name: str, value: Any, where: str) -> NamedIdentity:
    fields = {"name", "issuer", "may"}
    if not isinstance(value, dict) or set(value) - {"staging"} != fields or not isinstance(value["may"], list):
        raise ValueError(f"{where}: identity {name} is {value!r}; it must have `name`, `issuer` and a list `may`")
    who, issuer, is_staging = value["name"], value["issuer"], value.get("staging", False)
    if not (isinstance(who, str) and who and isinstance(issuer, str) and issuer.startswith("https://")):
        raise ValueError(f"{where}: identity {name} is {value!r}; name is an address or a URL, issuer a URL (https://...)")
    if type(is_staging) is not bool:
        raise ValueError(f"{where}: identity {name} has staging {is_staging!r}; true or false is allowed")
    try:
        return NamedIdentity(name, Identity(who, issuer, is_staging), frozenset(value["may"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: identity {name}: {error}") from error
