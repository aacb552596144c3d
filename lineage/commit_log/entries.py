"""Entries of commits that no segment holds yet: one small file each, written before the manifest.

    .lineage/log/<sha256 of the manifest's text>.json      {"address": ..., "keys": [...]}

An entry without its manifest is harmless: a reader that finds no manifest drops the candidate. A manifest without its entry
would be missed, so the entry comes first. A deletion has an entry too, which is written before the manifest is deleted: what
answers about everything that is there (`lineage.commit_log.news`) then reads that address again.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lineage.artifact.manifest import Manifest
from lineage.commit_log.keys import CHANGED, keys_of
from lineage.names import check_relative
from lineage.storage.digests import canonical_json
from lineage.storage.root import Storage
from lineage.strangers import json_object

FOLDER = ".lineage/log"
"""Below the store's root; a key part cannot start with a dot, so no artifact lies there."""
MAX_KEY = 1 << 64
_NAME = re.compile(r"[0-9a-f]{64}\.json")
REMEDY = "`./marin lineage --rebuild` makes the commit log again from the manifests"


class DamagedLogError(ValueError):
    """A file of the commit log that cannot be read. Manifests are not affected."""

    def __init__(self, where: str, why: object):
        super().__init__(f"{where} is no file of a commit log: {why}; {REMEDY}")


@dataclass(frozen=True)
class Entry:
    """One commit, or one that was begun: the file's name, the artifact's address, and the keys that find it."""

    name: str
    address: str
    keys: tuple[int, ...]


def announce(storage: Storage, manifest: Manifest, text: str, *, replaces: bool = False) -> str:
    """Write the entry of a manifest that is about to be written with this text. Returns the entry's address.

    `replaces`: whether it may take the place of another manifest at its address.
    """
    where = f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()}.json"
    keys = keys_of(manifest)
    storage.create(where, _text(manifest.spec.address, sorted({*keys, CHANGED}) if replaces else keys))
    return where


def announce_deletion(storage: Storage, address: str, what: str) -> None:
    """Write that the manifest at an address is about to be deleted. `what` is different for each deletion there."""
    name = hashlib.sha256(f"deleted {address} {what}".encode()).hexdigest()
    storage.create(f"{FOLDER}/{name}.json", _text(address, [CHANGED]))


def announce_return(storage: Storage, manifest: Manifest, what: str) -> None:
    """Write that a manifest which was deleted is about to be put back, as it was. `what` is different for each return."""
    name = hashlib.sha256(f"returned {manifest.spec.address} {what}".encode()).hexdigest()
    storage.create(f"{FOLDER}/{name}.json", _text(manifest.spec.address, keys_of(manifest)))


def _text(address: str, keys: Sequence[int]) -> str:
    return canonical_json({"address": address, "keys": keys})


def entry_names(storage: Storage) -> list[str]:
    """Return the names of all entries by one listing. Raises: DamagedLogError for a file that is no entry."""
    names = storage.records(FOLDER)
    if strange := next((name for name in names if not _NAME.fullmatch(name)), None):
        raise DamagedLogError(storage.uri(f"{FOLDER}/{strange}"), "its name is not that of an entry")
    return names


def read_entries(storage: Storage, names: Sequence[str]) -> list[Entry]:
    """Read entries, several at once; those that another process has folded meanwhile are left out.

    Raises: DamagedLogError naming an entry with other content.
    """

    def read(name: str) -> Entry | None:
        data = storage.read_bytes(f"{FOLDER}/{name}")
        return None if data is None else _parsed(storage.uri(f"{FOLDER}/{name}"), name, data)

    return [entry for entry in storage.read_each(read, names) if entry is not None]


def delete_entries(storage: Storage, names: Sequence[str]) -> None:
    """Delete entries whose rows a segment holds."""
    storage.read_each(lambda name: storage.delete(f"{FOLDER}/{name}"), names)


def _parsed(where: str, name: str, data: bytes) -> Entry:
    try:
        record = json_object(data.decode(), where)
        address = check_relative(record["address"], f"the address in {where}")
        keys = record["keys"]
        if not isinstance(keys, list) or not all(type(key) is int and 0 <= key < MAX_KEY for key in keys):
            raise ValueError(f"its keys are {json.dumps(keys)[:80]}; integers of 64 bits are allowed")
    except (ValueError, KeyError) as error:
        raise DamagedLogError(where, error) from error
    return Entry(name, address, tuple(keys))
