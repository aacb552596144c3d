"""Find an artifact from what a user typed: a folder, an address, or a name such as
`ferry/runs/smoke/checkpoint[2026-11-21]`."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME, from_json
from lineage.artifact.spec import partition_address
from lineage.artifact.store import Artifact, Store
from lineage.storage.digests import DIGEST_CHARS

log = logging.getLogger(__name__)
_ADDRESS = re.compile(rf".+/[0-9a-f]{{{DIGEST_CHARS}}}")
_NAME = re.compile(r"(?P<key>[^\[\]]+?)(?:\[(?P<partition>[^\[\]]+)\])?")


def locate(stores: Sequence[Store], text: str) -> Artifact:
    """Find an artifact by its folder (in any local store), or by its address or name in one of the stores.

    If several artifacts have the name, the newest is returned and a warning is logged. An address names exactly one.
    Raises: ValueError with the text, the stores that were searched, and what they hold.
    """
    folder = Path(text)
    if (folder / MANIFEST_NAME).is_file():
        return _in_folder(folder.resolve())
    address = text.strip("/")
    if _ADDRESS.fullmatch(address):
        for store in stores:
            found = store.open(address)
            if found is not None:
                return found
    return _by_name(stores, address)


def _in_folder(folder: Path) -> Artifact:
    """Open the artifact in a folder. The store's root is the folder without the artifact's address."""
    where = folder / MANIFEST_NAME
    address = from_json(where.read_text(encoding="utf-8"), str(where)).spec.address
    if not folder.as_posix().endswith(f"/{address}"):
        raise ValueError(f"{folder} holds the manifest of {address}: it was copied or moved by hand")
    root = folder.as_posix().removesuffix(f"/{address}")
    artifact = Store(root).open(address)
    assert artifact is not None  # its manifest has just been read
    return artifact


def _by_name(stores: Sequence[Store], text: str) -> Artifact:
    match = _NAME.fullmatch(text)
    roots = ", ".join(store.root for store in stores)
    if match is None:
        raise ValueError(f"{text!r} is no artifact's folder, address or name; names look like datakit/normalized[kjv]")
    key = tuple(match["key"].split("/"))
    place = partition_address(key, match["partition"]).split("/")
    found = [artifact for store in stores for artifact in store.artifacts(*place) if artifact.name == text]
    if not found:
        partitions = sorted({name for store in stores for name in store.storage.folders("/".join(key))})
        there = f"under {'/'.join(key)} there is: {', '.join(partitions[:20])}" if partitions else "nothing is under that key"
        raise ValueError(f"no artifact {text!r} in {roots}; {there}")
    newest = max(found, key=lambda artifact: (artifact.manifest.created, artifact.spec.version))
    if len(found) > 1:
        log.warning("%d artifacts are called %s; the newest is taken, %s", len(found), text, newest.spec.address)
    return newest
