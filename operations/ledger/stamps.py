"""Find manifests that are new, changed or deleted since the last time.

A full listing of a local root opens every folder: 8 s for 100,000 artifacts. `Stamps` remembers the time of change of every
inner folder. So the next listing reads the times of folders and manifests (`stat`) and opens only folders that changed. A
bucket lists manifests by pages and does not need this.
"""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Store

RACY_NS = 2_000_000_000
"""A folder that changed this shortly before it was read is read again: its next change may have the same time."""
NEVER = -1


@dataclass
class Stamps:
    """What a listing saw: manifests with their stamps, inner folders and folders without a manifest with their times."""

    manifests: dict[str, str] = field(default_factory=dict)
    """Address of an artifact -> stamp of its manifest."""
    folders: dict[str, int] = field(default_factory=dict)
    """Folder without a manifest -> time of change in ns; NEVER: it must be read again."""


def look(store: Store, before: Stamps) -> Stamps:
    """Return what exists now. Folders that did not change since `before` are not read again."""
    if not store.storage.is_local:
        stamps = store.storage.stamps(MANIFEST_NAME)
        return Stamps({address.removesuffix(f"/{MANIFEST_NAME}"): stamp for address, stamp in stamps.items()})
    return _look_local(store.root, before)


def look_at(root: str, before: Stamps, addresses: Collection[str]) -> tuple[Stamps, frozenset[str]]:
    """Return what exists now of the known manifests and of those at some more addresses, without a look into folders.

    The second value has the addresses without a manifest. `root` is a local folder.
    """
    stamps, missing = Stamps(folders=before.folders), set[str]()
    folder = os.open(root, os.O_RDONLY)  # paths relative to an open folder are found sooner
    try:
        for address in (*before.manifests, *(a for a in addresses if a not in before.manifests and _is_below(a))):
            stamp = _stamp(f"{address}/{MANIFEST_NAME}", folder)
            if stamp is None:
                missing.add(address)
            else:
                stamps.manifests[address] = stamp
    finally:
        os.close(folder)
    return stamps, frozenset(missing)


def _is_below(address: str) -> bool:
    """Whether an address, which anybody may have written, stays below the root."""
    return bool(address) and not any(part.startswith(".") or not part for part in address.split("/"))


def _look_local(root: str, before: Stamps) -> Stamps:
    stamps, base, pending = Stamps(), root.rstrip("/"), list[str]()
    if not Path(root).is_dir():
        return stamps
    for address, old in before.manifests.items():
        stamp = _stamp(f"{base}/{address}/{MANIFEST_NAME}")
        if stamp is None:
            pending.append(address)  # its folder may get a manifest again
        else:
            stamps.manifests[address] = old if stamp == old else stamp
    for folder, changed in before.folders.items():
        try:
            now = os.stat(f"{base}/{folder}").st_mtime_ns  # noqa: PTH116
        except FileNotFoundError:
            continue
        if now == changed:
            stamps.folders[folder] = changed
        else:
            pending.append(folder)
    _read(base, pending if before.folders else [""], stamps)
    return stamps


def _read(base: str, pending: list[str], stamps: Stamps) -> None:
    while pending:
        folder = pending.pop()
        try:
            facts = os.stat(f"{base}/{folder}").st_mtime_ns  # noqa: PTH116
            with os.scandir(f"{base}/{folder}") as entries:
                inside = list(entries)
        except FileNotFoundError:
            continue
        if any(entry.name == MANIFEST_NAME for entry in inside):
            stamp = _stamp(f"{base}/{folder}/{MANIFEST_NAME}")
            if stamp is not None:
                stamps.manifests[folder] = stamp
                continue
        racy = time.time_ns() - facts < RACY_NS
        stamps.folders[folder] = NEVER if racy else facts
        for entry in inside:
            child = f"{folder}/{entry.name}" if folder else entry.name
            is_read = child in stamps.manifests or child in stamps.folders
            if not is_read and not child.startswith(".") and entry.is_dir(follow_symlinks=False):
                pending.append(child)


def _stamp(path: str, folder: int | None = None) -> str | None:
    """Return the stamp that `Storage.stamps` gives: size and time. `folder`: an open folder that the path is relative to."""
    try:
        facts = os.stat(path, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{facts.st_size}:{facts.st_mtime_ns}"
